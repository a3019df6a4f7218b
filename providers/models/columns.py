"""Columns that several tables share, and words as choices."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from django.db import models
from django.db.models import Q

from providers.core.exchange import Who

TENANT = 100
NAME = 100
KEY = 200

WHO = ["tenant_id", "provider_name", "capability"]


class OfCapability(models.Model):
    """A row of one capability of one provider, for one tenant."""

    tenant_id = models.CharField("tenant", max_length=TENANT, help_text="The tenant; usually a UUID.")
    provider_name = models.CharField("provider", max_length=NAME)
    capability = models.CharField(max_length=NAME)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.who.title

    @property
    def who(self) -> Who:
        return Who(self.tenant_id, self.provider_name, self.capability)


def named(table: str, **more: Any) -> models.CheckConstraint:
    """The check that tenant, provider and capability are not empty."""
    condition = ~Q(tenant_id="") & ~Q(provider_name="") & ~Q(capability="")
    return models.CheckConstraint(condition=condition, name=f"{table}_named", **more)


def words(states: Iterable[StrEnum]) -> list[tuple[str, str]]:
    return [(state.value, state.value) for state in states]


def among(field: str, states: Iterable[StrEnum], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(**{f"{field}__in": [state.value for state in states]}), name=name)

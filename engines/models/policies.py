"""Policies of pipelines, in versions that never change."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from engines.core.errors import PolicyError
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.models.wording import NAME
from ergon_site.access.policies.models import PolicyRow, VersionRow

KINDS = [("consumer", "consumer"), ("producer", "producer")]
VALUES: dict[str, type[ConsumerPolicy | ProducerPolicy]] = {"consumer": ConsumerPolicy, "producer": ProducerPolicy}


class Policy(PolicyRow):
    """A policy of pipelines: a name, and its active version."""

    name = models.CharField(max_length=NAME, unique=True)
    kind = models.CharField(max_length=10, choices=KINDS)
    active = models.OneToOneField("PolicyVersion", null=True, on_delete=models.RESTRICT, related_name="+")

    class Meta:
        verbose_name_plural = "policies"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=["consumer", "producer"]), name="engines_policy_kind"),
        ]

    @property
    def value_class(self) -> type[ConsumerPolicy | ProducerPolicy]:
        if self.kind not in VALUES:
            msg = f"a policy is of the kind consumer or producer, not {self.kind!r}"
            raise PolicyError(msg)
        return VALUES[self.kind]


class PolicyVersion(VersionRow):
    """A version of a policy, with author and reason. Append-only: the database refuses to change it."""

    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="versions")

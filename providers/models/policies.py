"""Policies of providers, in versions that never change."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from ergon_site.access.policies.models import PolicyRow, VersionRow
from providers.core.policy import ProviderPolicy
from providers.models.columns import NAME


class ProviderPolicyRow(PolicyRow):
    """A stored policy of a capability, in place of that of its class."""

    identity: ClassVar = ("provider_name", "capability")
    value_class: ClassVar = ProviderPolicy

    provider_name = models.CharField("provider", max_length=NAME)
    capability = models.CharField(max_length=NAME)
    active = models.OneToOneField("ProviderPolicyVersion", null=True, on_delete=models.RESTRICT, related_name="+")

    class Meta:
        db_table = "provider_policies"
        verbose_name = "provider policy"
        verbose_name_plural = "provider policies"
        ordering: ClassVar = ["provider_name", "capability"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider_name", "capability"], name="provider_policy_of"),
            models.CheckConstraint(condition=~Q(provider_name="") & ~Q(capability=""), name="provider_policy_named"),
        ]


class ProviderPolicyVersion(VersionRow):
    """A version of a provider policy, with author and reason. The database refuses to change it."""

    policy = models.ForeignKey(ProviderPolicyRow, on_delete=models.RESTRICT, related_name="versions")

    class Meta(VersionRow.Meta):
        db_table = "provider_policy_versions"
        verbose_name = "provider policy version"

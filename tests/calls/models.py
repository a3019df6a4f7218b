"""How calls are made, for each provider and capability."""

from dataclasses import dataclass, field
from typing import ClassVar

from django.db import models

from engines.core.rules import DURATION, WHOLE, Policy, means, part
from ergon_site.access.policies.models import PolicyRow, VersionRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry(Policy):
    max_attempts: int = field(default=3, metadata=WHOLE | means("How often it is tried.", "attempts"))
    longest_delay: float = field(default=5.0, metadata=DURATION | means("The longest wait.", "seconds"))
    base_delay: float = field(default=0.2, metadata=DURATION | means("The first wait.", "seconds"))

    def check(self) -> None:
        if self.longest_delay < self.base_delay:
            self.refuse("longest_delay", f"must be at least base_delay ({self.base_delay})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling(Policy):
    retry: Retry = field(default_factory=Retry, metadata=part(Retry, "When a call fails."))
    region: str = field(
        default="eu",
        metadata={"bound": "a text", "check": lambda value: isinstance(value, str), "optional": False}
        | means("Where calls go."),
    )


class CallPolicy(PolicyRow):
    identity: ClassVar = ("provider", "capability")
    value_class: ClassVar = Calling

    provider = models.CharField(max_length=100)
    capability = models.CharField(max_length=100)
    active = models.OneToOneField("CallPolicyVersion", null=True, on_delete=models.RESTRICT, related_name="+")

    class Meta:
        app_label = "calls"
        constraints: ClassVar = [models.UniqueConstraint(fields=["provider", "capability"], name="calls_policy_key")]


class CallPolicyVersion(VersionRow):
    policy = models.ForeignKey(CallPolicy, on_delete=models.RESTRICT, related_name="versions")

    class Meta(VersionRow.Meta):
        app_label = "calls"

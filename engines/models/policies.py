"""How pipelines run, in versions that never change."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from engines.models.wording import NAME

KINDS = [("consumer", "consumer"), ("producer", "producer")]


class Policy(models.Model):
    """How pipelines run: a name, and which of its versions is in force."""

    name = models.CharField(max_length=NAME, unique=True)
    kind = models.CharField(max_length=10, choices=KINDS)
    active = models.OneToOneField("PolicyVersion", null=True, on_delete=models.RESTRICT, related_name="+")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "policies"
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(kind__in=["consumer", "producer"]), name="engines_policy_kind"),
        ]

    def __str__(self) -> str:
        return self.name


class PolicyVersion(models.Model):
    """What a policy said at one time, by whom and why. Written once: the database refuses to change it."""

    policy = models.ForeignKey(Policy, on_delete=models.RESTRICT, related_name="versions")
    number = models.PositiveIntegerField()
    body = models.JSONField()
    changes = models.JSONField(default=list, help_text="What differs from the version in force when it was written.")
    author = models.CharField(max_length=150)
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["policy", "number"], name="engines_policyversion_number"),
        ]

    def __str__(self) -> str:
        return f"{self.policy.name} v{self.number}"

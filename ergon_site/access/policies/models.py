"""The base models of policies and their versions, which never change, for any app.

An app derives both, adds the columns that tell its policies apart, and joins them: `active` of a policy is one of its
versions, `policy` of a version is its policy.
"""

from typing import Any, ClassVar, NamedTuple

from django.db import models
from django.db.models import CharField, OuterRef, Value
from django.db.models.functions import Concat, Now

from ergon_site.access.core.ruled import Ruled

BETWEEN = "/"


class InForce(NamedTuple):
    """A policy as it is now, and the row that says so."""

    version_id: int
    policy: Ruled


class PolicyRow(models.Model):
    """A policy: its name, and which of its versions is in force."""

    # The columns that tell one policy from another; together they are its name.
    identity: ClassVar[tuple[str, ...]] = ("name",)

    active: Any
    versions: Any

    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return told(*self.key)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(getattr(self, column) for column in self.identity)

    @property
    def target(self) -> str:
        """The policy as the audit log names it."""
        return f"{self._meta.verbose_name} {self}"

    @classmethod
    def target_of_each(cls) -> Concat:
        """The same, for a query within one that goes through the policies."""
        first, *others = cls.identity
        parts = [Value(f"{cls._meta.verbose_name} "), OuterRef(first)]
        for column in others:
            parts += [Value(BETWEEN), OuterRef(column)]
        return Concat(*parts, output_field=CharField())

    @property
    def value_class(self) -> type[Ruled]:
        raise NotImplementedError

    @property
    def in_force(self) -> InForce:
        return InForce(self.active.pk, self.content(self.active))

    def read(self, body: Any) -> Ruled:
        """The policy that somebody asks for, complete and checked."""
        return self.value_class.from_dict(body)

    def content(self, version: "VersionRow") -> Ruled:
        """The policy of one of the versions, which may have been written by a newer release."""
        return self.value_class.from_stored(version.body)


class VersionRow(models.Model):
    """A version of a policy, with author and reason. Written once: its migration adds `AppendOnly`."""

    policy: Any

    number = models.PositiveIntegerField()
    body = models.JSONField()
    changes = models.JSONField(default=list, help_text="Changes from the version that was active before.")
    author = models.CharField(max_length=150)
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        abstract = True
        ordering: ClassVar = ["-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["policy", "number"], name="%(app_label)s_%(class)s_number"),
        ]

    def __str__(self) -> str:
        return f"{self.policy} v{self.number}"


def told(*key: str) -> str:
    """A policy's name, of however many columns it is made."""
    return BETWEEN.join(key)

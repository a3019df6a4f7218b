"""Events: what has changed on gates, kept for people and programs to read."""

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now

from ergon_site.access.core.texts import LONGEST_REASON
from providers.core.events import EventKind
from providers.core.gate import LAST
from providers.models.columns import WHO, OfCapability, among, named, words

BY = 150
STATE = 60


class EndField(models.DateTimeField):
    """A time that lies ahead. One that no calendar knows any more, as a row may hold it, is read as their last."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        if compiler.connection.vendor != "postgresql":
            return sql, params
        last = f"CAST('{LAST.isoformat()}' AS timestamptz)"
        return f"CASE WHEN {sql} > {last} THEN {last} ELSE {sql} END", [*params, *params]

    def deconstruct(self) -> Any:
        name, _, arguments, options = super().deconstruct()
        return name, "django.db.models.DateTimeField", arguments, options


class ProviderEvent(OfCapability):
    """A change of a breaker, pause, quota or override; written once, with the change itself.

    Keys grow in the order of the changes of a capability. `at` is when the database was asked for the change.
    """

    kind = models.CharField(max_length=10, choices=words(EventKind))
    from_state = models.CharField("from", max_length=STATE)
    to_state = models.CharField("to", max_length=STATE)
    why = models.CharField(max_length=LONGEST_REASON, blank=True, default="", db_default="")
    generation = models.BigIntegerField(help_text="The breaker's generation after the change.")
    at = models.DateTimeField(db_default=Now())
    until = EndField(null=True, blank=True, help_text="When the new state ends by itself.")
    by = models.CharField(
        max_length=BY, blank=True, default="", db_default="", help_text="Empty if nobody asked for it."
    )

    class Meta:
        db_table = "provider_events"
        verbose_name = "event"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=[*WHO, "-id"], name="provider_event_capability"),
            models.Index(fields=["tenant_id", "-id"], name="provider_event_tenant"),
        ]
        constraints: ClassVar = [among("kind", EventKind, "provider_event_kind"), named("provider_event")]

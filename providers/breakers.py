"""Open breakers: which of them stand in the way of calls, and until when."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from ergon_site.access.database.clock import database_time
from providers.core.breaker import BreakerState
from providers.core.exchange import Who
from providers.models import Gate, ProviderExecutionMetric
from providers.reads import health
from providers.reads.health import Standing


class OpenBreaker(NamedTuple):
    """An open breaker, in few words, and until when; without a time until it is reset."""

    what: str
    until: datetime | None

    def facts(self) -> dict[str, Any]:
        return {"what": self.what, "until": self.until and self.until.isoformat()}


def open_among(capabilities: Collection[Who]) -> list[OpenBreaker]:
    """The breakers that let no call pass now, open by themselves or by an override."""
    if not capabilities:
        return []
    names = {f"{name}__in": {getattr(who, name) for who in capabilities} for name in Who._fields}
    now = database_time()
    stands = (health.of_row(gate, now) for gate in Gate.objects.filter(**names))
    return [_open_breaker(one) for one in stands if one.who in capabilities and one.state is BreakerState.OPEN]


def called_under(correlation_ids: Iterable[str]) -> set[Who]:
    """The capabilities that were called under these correlation ids, or would have been."""
    made = ProviderExecutionMetric.objects.filter(correlation_id__in=correlation_ids).order_by()
    return {Who(*names) for names in made.values_list(*Who._fields).distinct()}


def _open_breaker(one: Standing) -> OpenBreaker:
    until = one.override_until if one.override else one.reopens_at
    return OpenBreaker(f"breaker {one.who.provider_name}/{one.who.capability} open", until)

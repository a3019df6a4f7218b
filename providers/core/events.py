"""Events: what has changed on a gate, from what to what, why and by whom.

The statement that changes a gate leaves marks on its row: `turned_from` and `held_from`. Each mark is an event.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from providers.core.breaker import BreakerState
from providers.core.exchange import Who
from providers.core.gate import moment

# Where nothing is in force: no pause, no override, no quota.
NONE = "none"
PAUSED = "paused"
AVAILABLE, EXHAUSTED = "available", "exhausted"
COOLED_DOWN = "the cooldown is over"
USED_UP = "the quota is used up"
EXPIRED = "its time is over"
WOULD_OPEN = "would open"


class EventKind(StrEnum):
    BREAKER = "breaker"
    EXHAUSTION = "exhaustion"
    PAUSE = "pause"
    OVERRIDE = "override"
    QUOTA = "quota"
    SHADOW = "shadow"  # a rule that only records would have opened the breaker


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEventNotice:
    """An event as callables of `on_event` are given it; the fields are those of a row of `provider_events`."""

    tenant_id: str
    provider_name: str
    capability: str
    kind: EventKind
    from_state: str
    to_state: str
    why: str
    generation: int
    at: datetime
    until: datetime | None = None
    by: str = ""


class Marks(NamedTuple):
    """What a decision has changed on a gate. Texts are empty where nothing has changed, times are seconds."""

    at: float
    generation: int
    state: str
    turned_from: str
    held_from: str
    open_until: float | None
    held_until: float | None
    opened_by: str = ""  # the rate that opened it
    would_open: str = ""  # the rate that would have opened it

    def notices(self, who: Who, why: str) -> Iterator[ProviderEventNotice]:
        """The events of these marks; `why` is what the decision was about."""
        at = moment(self.at)
        event = partial(ProviderEventNotice, **who._asdict(), generation=self.generation, at=at)
        opened = self.opened_by if self.turned_from == BreakerState.CLOSED.value else ""
        if self.turned_from:
            turned = partial(event, kind=EventKind.BREAKER, from_state=self.turned_from, to_state=self.state)
            yield turned(why=opened or why, until=_moment(self.open_until))
        if self.held_from:
            kind, held = (EventKind.EXHAUSTION, EXHAUSTED) if self.held_from == AVAILABLE else (EventKind.PAUSE, PAUSED)
            until = _moment(self.held_until)
            yield event(kind=kind, why=opened or why, from_state=self.held_from, to_state=held, until=until)
        if self.would_open:
            closed = BreakerState.CLOSED.value
            yield event(kind=EventKind.SHADOW, why=self.would_open, from_state=closed, to_state=WOULD_OPEN)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)

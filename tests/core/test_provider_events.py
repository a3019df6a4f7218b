"""The marks of a decision as events."""

from datetime import UTC, datetime
from typing import Any

import pytest

from providers.core.events import Marks, ProviderEventNotice
from providers.core.exchange import Who

WHO = Who("tenant", "rank", "rank_snapshot")


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def event(kind: str, from_state: str, to_state: str, until: float | None) -> ProviderEventNotice:
    states: dict[str, Any] = {"kind": kind, "from_state": from_state, "to_state": to_state, "until": at(until)}
    return ProviderEventNotice(**WHO._asdict(), **states, why="timeout", generation=7, at=at(5.0) or datetime.now(UTC))


@pytest.mark.parametrize(
    ("state", "turned_from", "held_from", "open_until", "held_until", "events"),
    [
        ("closed", "", "", None, 9.0, []),
        ("open", "closed", "", 8.0, None, [("breaker", "closed", "open", 8.0)]),
        ("half_open", "open", "", None, None, [("breaker", "open", "half_open", None)]),
        ("closed", "half_open", "", None, None, [("breaker", "half_open", "closed", None)]),
        ("closed", "", "none", None, 9.0, [("pause", "none", "paused", 9.0)]),
        ("closed", "", "paused", None, 9.0, [("pause", "paused", "paused", 9.0)]),
        ("closed", "", "available", None, 9.0, [("exhaustion", "available", "exhausted", 9.0)]),
        *[
            (
                "open",
                "closed",
                "none",
                8.0,
                9.0,
                [("breaker", "closed", "open", 8.0), ("pause", "none", "paused", 9.0)],
            ),
        ],
    ],
)
def test_each_mark_is_an_event(
    state: str, turned_from: str, held_from: str, open_until: float | None, held_until: float | None, events: Any
) -> None:
    marks = Marks(5.0, 7, state, turned_from, held_from, open_until, held_until)
    assert list(marks.notices(WHO, "timeout")) == [event(*one) for one in events]


def test_a_time_that_no_calendar_knows_is_their_last() -> None:
    [opened] = Marks(5.0, 7, "open", "closed", "", 999_999_999_999.0, None).notices(WHO, "timeout")
    assert opened.until == datetime(9999, 12, 31, tzinfo=UTC)

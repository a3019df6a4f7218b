"""Blockers of transactions outside of the engines, such as the open breaker of a provider that they call.

The engines know nothing of such things: whoever does adds a seer.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from engines.core import explanation


class Blocker(NamedTuple):
    """A blocker in few words, and until when; without a time until a person ends it."""

    what: str
    until: datetime | None = None

    def facts(self) -> dict[str, Any]:
        return {"what": self.what, "until": self.until and self.until.isoformat()}

    def __str__(self) -> str:
        return explanation.hindrance(self.facts())


# Given the ids under which calls are made, what stands in their way now.
BlockerCheck = Callable[[Collection[str]], Iterable[Blocker]]
CHECKS: list[BlockerCheck] = []


def blockers_of(ids: Collection[str]) -> list[Blocker]:
    """All that is known to stand in the way of what goes by these ids."""
    return sorted({one for see in CHECKS for one in see(ids)}, key=lambda one: one.what)

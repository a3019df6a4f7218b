"""Blockers of transactions outside of the engines, such as the open breaker of a provider that they call.

The engines know nothing of such things: installed apps name functions that do (`ergon_blockers`).
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.module_loading import import_string

from engines.conf import settings
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


def blockers_of(ids: Collection[str]) -> list[Blocker]:
    """All that is known to stand in the way of what goes by these ids."""
    checks: Iterable[BlockerCheck] = map(import_string, settings().blockers)
    return sorted({one for see in checks for one in see(ids)}, key=lambda one: one.what)

"""The states of everything that the console shows: one label and one colour for each, in one table.

Labels are the console's own: addresses, exports, the API and `status --json` keep the words of the rows. Templates have
the filters `tag`, `label` and `colour`: `{{ letter.state|tag:"dead letter" }}`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from django import template
from django.utils.html import format_html
from django.utils.text import capfirst

register = template.Library()


class Colour(StrEnum):
    """The second part of the CSS classes `ergon-tag-…` and `ergon-says-…`."""

    PLAIN = "plain"
    BUSY = "busy"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Shown(NamedTuple):
    label: str
    colour: Colour


ACTIVE = Shown("active", Colour.GOOD)
PAUSED = Shown("paused", Colour.WARNING)
RUNNING = Shown("running", Colour.BUSY)
SUCCEEDED = Shown("succeeded", Colour.GOOD)
FAILED = Shown("failed", Colour.BAD)
CANCELLED = Shown("cancelled", Colour.WARNING)
UNRESOLVED = Shown("unresolved", Colour.BAD)
REPLAYED = Shown("replayed", Colour.GOOD)
DISCARDED = Shown("discarded", Colour.WARNING)
LATE = Shown("late", Colour.WARNING)
RETIRED = Shown("retired", Colour.PLAIN)
DISABLED = Shown("disabled", Colour.WARNING)

# By kind of thing, then by the word of its rows. A label has one colour wherever it stands.
STATES: Mapping[str, Mapping[str, Shown]] = {
    "transaction": {
        "pending": Shown("pending", Colour.PLAIN),
        # The sorts of pending ones: not due before a time, due but not begun, and between two attempts.
        "scheduled": Shown("scheduled", Colour.PLAIN),
        "waiting": Shown("waiting", Colour.PLAIN),
        "parked retry": Shown("parked retry", Colour.WARNING),
        "running": RUNNING,
        "succeeded": SUCCEEDED,
        "failed": FAILED,
        "cancelled": CANCELLED,
    },
    "attempt": {"success": SUCCEEDED, "failure": FAILED, "cut": Shown("cut short", Colour.WARNING)},
    "dead letter": {"open": UNRESOLVED, "replayed": REPLAYED, "discarded": DISCARDED},
    "group": {
        "open": UNRESOLVED,
        "muted": Shown("muted", Colour.WARNING),
        "resolved": Shown("resolved", Colour.GOOD),
        "regressed": Shown("regressed", Colour.BAD),
    },
    "bulk operation": {
        "running": RUNNING,
        "paused": PAUSED,
        "done": Shown("done", Colour.GOOD),
        "cancelled": CANCELLED,
        "stopped": Shown("stopped", Colour.BAD),
        # Of one that has started all of its replays: some still run, or some have failed again.
        "finishing": Shown("finishing", Colour.BUSY),
        "failures": Shown("done, some failed", Colour.BAD),
    },
    # How the replay of a row ended.
    "replay": {
        "succeeded": SUCCEEDED,
        "failed": Shown("failed again", Colour.BAD),
        "running": Shown("still running", Colour.BUSY),
        "cancelled": CANCELLED,
        "lost": Shown("deleted", Colour.PLAIN),
    },
    # What has become of one row of a bulk operation; of one that is done, the page says what was done.
    "bulk item": {
        "done": Shown("done", Colour.GOOD),
        "skipped": Shown("skipped", Colour.WARNING),
        "failed": Shown("refused", Colour.BAD),
    },
    "pipeline": {"active": ACTIVE, "paused": PAUSED, "disabled": DISABLED},
    "schedule": {"active": ACTIVE, "paused": PAUSED, "late": LATE},
    "worker": {
        "running": RUNNING,
        "silent": Shown("silent", Colour.WARNING),
        "stopping": Shown("stopping", Colour.WARNING),
        "stopped": Shown("ended", Colour.PLAIN),
        "dead": Shown("dead", Colour.BAD),
    },
    "executor": {
        "working": Shown("working", Colour.GOOD),
        "idle": Shown("idle", Colour.GOOD),
        "not started": Shown("not started", Colour.PLAIN),
        "backing off": Shown("backing off", Colour.BAD),
        "failing": Shown("failing", Colour.BAD),
        "unconfigured": Shown("not configured here", Colour.WARNING),
    },
    "policy version": {"active": ACTIVE},
    # Of a figure in a rehearsal.
    "change": {
        "better": Shown("better", Colour.GOOD),
        "worse": Shown("worse", Colour.BAD),
        "neither": Shown("neither", Colour.PLAIN),
    },
    "attention": {
        "critical": Shown("critical", Colour.BAD),
        "warning": Shown("warning", Colour.WARNING),
        "notice": Shown("notice", Colour.PLAIN),
    },
    "breaker": {
        "closed": Shown("closed", Colour.GOOD),
        "half_open": Shown("half open", Colour.WARNING),
        "open": Shown("open", Colour.BAD),
        "forced": Shown("forced", Colour.WARNING),
        "paused": PAUSED,
        "exhausted": Shown("exhausted", Colour.BAD),
        "account_half_open": Shown("account half open", Colour.WARNING),
        "account_open": Shown("account open", Colour.BAD),
    },
    "provider attempt": {
        "success": SUCCEEDED,
        "retry": Shown("retry", Colour.WARNING),
        "failed": FAILED,
        "dead_letter": Shown("dead letter", Colour.BAD),
        "cache": Shown("cache", Colour.GOOD),
        "stale": Shown("stale", Colour.WARNING),
        "fallback": Shown("fallback", Colour.WARNING),
    },
    "task execution": {
        "started": RUNNING,
        "succeeded": SUCCEEDED,
        "rescheduled": Shown("rescheduled", Colour.WARNING),
        "failed": FAILED,
    },
    "outbox letter": {
        "waiting": Shown("unpublished", Colour.WARNING),
        "published": Shown("published", Colour.GOOD),
    },
    "boundary": {
        "normal": Shown("normal", Colour.GOOD),
        "reconciling": Shown("reconciling", Colour.WARNING),
        "autonomous": Shown("autonomous", Colour.BAD),
        "alarm": Shown("alarm", Colour.BAD),
        "retired": RETIRED,
    },
    "zone": {"active": ACTIVE, "retired": RETIRED},
    "consumer": {
        "current": Shown("up to date", Colour.GOOD),
        "behind": Shown("behind", Colour.WARNING),
        "retired": RETIRED,
    },
    "artifact": {
        "referenced": Shown("referenced", Colour.GOOD),
        "orphan": Shown("orphan", Colour.WARNING),
        "damaged": Shown("damaged", Colour.BAD),
        "missing": Shown("missing", Colour.BAD),
        "corrupt": Shown("corrupt", Colour.BAD),
    },
    "client": {
        "enabled": ACTIVE,
        "disabled": DISABLED,
        "expired": Shown("expired", Colour.WARNING),
    },
}


@register.filter
def label(word: str, kind: str) -> str:
    """A state as the console calls it; a word that no table knows is shown as it is."""
    return _shown(word, kind).label


@register.filter
def colour(word: str, kind: str) -> str:
    return _shown(word, kind).colour


@register.filter
def tag(word: str, kind: str) -> str:
    """A state as a small coloured word."""
    shown = _shown(word, kind)
    return format_html('<span class="ergon-tag ergon-tag-{}">{}</span>', shown.colour, shown.label)


def choices(kind: str, *words: str) -> dict[str, str]:
    """A filter's values and their titles: of all states of a kind, or of these."""
    return {word: capfirst(label(word, kind)) for word in words or STATES[kind]}


def _shown(word: str, kind: str) -> Shown:
    # A row of a newer release may have a state that this one does not know.
    return STATES[kind].get(word) or Shown(str(word).replace("_", " "), Colour.PLAIN)

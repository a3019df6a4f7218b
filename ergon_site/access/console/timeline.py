"""The timeline of a page: what all installed apps know of the ids that belong together."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils.module_loading import import_string

from ergon_site.access import conf
from ergon_site.access.console import states
from ergon_site.access.core.durations import span
from ergon_site.access.core.timeline import SHOWN, Event, Line, Link, merge

# Given the ids under which things are known, the events of one app, at most one more than `MERGED`.
Source = Callable[[Collection[str]], list[Event]]
ALL = 500
# Whose states the outcomes of an event are.
STATES = {"attempt": "attempt", "call": "provider attempt", "relative": "transaction", "end": "transaction"}
COLOURS = {"dead letter": "bad", "due": "next"}


def sources(ids: Collection[str], *, but: str = "") -> list[list[Event]]:
    """The events of each installed app under these ids; without those of the app that tells its own."""
    names = [name for names in conf.declared_by_apps("ergon_timeline") for name in names]
    known: Iterable[Source] = (import_string(name) for name in names if not but or not name.startswith(f"{but}."))
    return [source(ids) for source in known] if ids else []


def shown(request: Any) -> int:
    """How many events this page shows; all that there are room for, if somebody asks for them."""
    return ALL if request.GET.get("timeline") == "all" else SHOWN


def timeline(request: Any, *events: Sequence[Event], left_out: int = 0) -> dict[str, Any]:
    """The part of a page, from the events of its own app and of others."""
    merged = merge(*events, left_out=left_out, shown=shown(request))
    return {
        "lines": [_line(line, request.path) for line in merged.lines],
        "hidden": f"{merged.hidden:,}{'+' if merged.is_capped else ''}" if merged.hidden else "",
        "has_attempts": any(line.event.kind == "attempt" for line in merged.lines),
        "is_all": shown(request) == ALL,
    }


def _line(line: Line, here: str) -> dict[str, Any]:
    event, after = line.event, line.after
    kind = STATES[event.kind] if event.outcome else ""
    address = _address(event.target)
    return {
        "event": event,
        "bar": line.bar,
        "after": f"+{span(after)}" if after > 0 else "",
        "took": "" if event.duration is None else span(event.duration),
        "colour": states.colour(event.outcome, kind) if kind else COLOURS.get(event.kind, "plain"),
        "outcome": states.tag(event.outcome, kind) if kind else "",
        "address": address if address != here else "",
        "links": [{"text": link.text, "address": _address(link)} for link in event.links],
    }


def _address(link: Link | None) -> str:
    """The page of a row; none where the console has no such page."""
    try:
        return reverse(f"ergon:{link.page}_change", args=[link.key]) if link else ""
    except NoReverseMatch:
        return ""

"""Badges of the sidebar: attention items and unresolved dead letters.

A page never asks for them: it shows what this process has read within the last seconds, and nothing otherwise. A script
then asks for the numbers by themselves, which reads them at most once every few seconds for all people of a process.
"""

import time
from dataclasses import dataclass

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, JsonResponse

from ergon_site.access.console.pages import holds
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.dashboard import reading
from ergon_site.dashboard.reading import Reading

# What makes numbers stale: these seconds, and an acknowledgement in this process. All other acts wait for the seconds.
FRESH = 5.0
CAP = 999
# The entries of the menu that have one, and what a reader of text is told.
TITLES = {
    "ergon:index": "attention items",
    "ergon:engines_deadlettergroup_changelist": "unresolved dead letters",
}


@dataclass(frozen=True, slots=True)
class Badges:
    attention: str
    dead_letters: str
    read_at: float  # on the monotonic clock


# By whether the reader is an administrator: others are not told of people and API clients.
_last: dict[bool, Badges] = {}


def remember(request: HttpRequest, found: Reading) -> Badges:
    """Keep the numbers of a reading that was made for a page."""
    kept = Badges(_text(found.count, found.more), _text(found.pulse.open_letters), time.monotonic())
    _last[holds(request, Right.ADMINISTER)] = kept
    return kept


def forget() -> None:
    _last.clear()


def fresh(request: HttpRequest) -> Badges | None:
    """The numbers, if they have been read just now."""
    kept = _last.get(holds(request, Right.ADMINISTER))
    return kept if kept and time.monotonic() - kept.read_at < FRESH else None


def by_address(request: HttpRequest) -> dict[str, str]:
    """The badges as texts, by the address of the menu's entry; none where the number is not known."""
    kept = fresh(request)
    return _texts(kept) if kept else {}


def view(request: HttpRequest) -> JsonResponse:
    """The badges for the script that shows them."""
    if not holds(request, Right.VIEW):
        raise PermissionDenied
    kept = fresh(request)
    if kept is None:
        found = reading.read(page_time(), is_administrator=holds(request, Right.ADMINISTER))
        kept = remember(request, found)
    return JsonResponse(_texts(kept), headers={"Cache-Control": "no-store"})


def _texts(kept: Badges) -> dict[str, str]:
    return dict(zip(TITLES, (kept.attention, kept.dead_letters), strict=True))


def _text(number: int, more: str = "") -> str:
    return f"{CAP:,}+" if number > CAP else f"{number:,}{more}" if number else ""

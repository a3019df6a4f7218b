"""What an attention item leads to and offers, for the pages that show it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.text import Truncator

from ergon_site.access.console.buttons import Button, button
from ergon_site.access.core.roles import Right

SHOWN_OF_A_KIND = 5
# Read of capabilities and of artifacts, which may be very many.
MOST_OF_A_KIND = 200
LONGEST_TITLE = 200
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """An act of a page, offered beside the item: the dialog is the page's own and leads back to the dashboard."""

    title: str
    name: str
    key: int
    right: Right

    def button(self, request: HttpRequest) -> Button:
        address = f"{reverse(f'ergon:{self.name}', args=[self.key])}?from=dashboard"
        return button(request, self.title, address, right=self.right)


@dataclass(frozen=True, slots=True)
class Link:
    """The address of a page, found only when it is shown: of hundreds of items a few are."""

    name: str
    arguments: tuple[object, ...] = ()
    rest: str = ""

    def __str__(self) -> str:
        return f"{reverse(f'ergon:{self.name}', args=self.arguments)}{self.rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """Where an item leads to, where the list of all of its kind is, and what can be done about it."""

    address: Link
    behind: Link | None = None
    acts: tuple[Act, ...] = ()


def short(name: object) -> str:
    """A name that leaves room for what is said about it."""
    return Truncator(str(name)).chars(LONGEST_NAME)


def page(name: str, *arguments: object) -> Link:
    return Link(name, arguments)


def listed(name: str, **filters: Any) -> Link:
    return Link(name, rest=f"?{urlencode(filters)}")


def clock(at: datetime, now: datetime) -> str:
    """A time of the last day by the clock, an older one with its date."""
    return f"{at:%H:%M}" if (now - at).total_seconds() < 20 * 3600 else f"{at:%b %d, %H:%M}"

"""Attention items: which is the cause of which, the order of the list, and which are acknowledged."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

# An acknowledged item comes back when more than a quarter is added to what was acknowledged.
GROWTH = 1.25
LONGEST = timedelta(days=30)
# As many consequences of one cause are enough to know it by.
MANY = 100


class Severity(IntEnum):
    """How bad an item is, and the word of the console."""

    NOTICE = 1
    WARNING = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that needs attention.

    `key` names it for as long as it lasts, its kind first. `cause` tells one occurrence from the next, such as the time
    of a pause. `gathered_as` is the key under which several of its kind are one item; their causes are in order, and
    that of the item is its newest. `count` is how much of its `unit` it affects, a lower limit if it `is_capped`.
    `caused_by` are keys of items that explain it. `shown` is for the edge that shows it.
    """

    key: str
    severity: Severity
    title: str
    detail: str = ""
    since: datetime | None = None
    cause: str = ""
    gathered_as: str = ""
    count: int = 1
    is_capped: bool = False
    unit: tuple[str, str] = ("", "")
    caused_by: tuple[str, ...] = ()
    shown: Any = None

    @property
    def kind(self) -> str:
        return self.key.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A person's word that an item is known, with the item as it was then."""

    key: str
    cause: str
    severity: int
    count: int
    is_capped: bool
    until: datetime
    by: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An item and its consequences, and the acknowledgement that holds for all of them."""

    item: Item
    consequences: tuple[Item, ...] = ()
    acknowledged: Acknowledgement | None = None

    @property
    def severity(self) -> Severity:
        return max(one.severity for one in self.items)

    @property
    def count(self) -> int:
        return sum(one.count for one in self.items)

    @property
    def is_capped(self) -> bool:
        return any(one.is_capped for one in self.items)

    @property
    def items(self) -> tuple[Item, ...]:
        return (self.item, *self.consequences)

    @property
    def summary(self) -> str:
        """The consequences in few words: 16 dead letters, 8 waiting."""
        units: dict[tuple[str, str], list[Item]] = {}
        for one in self.consequences:
            units.setdefault(one.unit, []).append(one)
        return ", ".join(_amount(unit, found) for unit, found in units.items() if any(unit))


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Entries of a kind that are not shown one by one."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The list: what needs attention, the worst first, and what is acknowledged."""

    entries: tuple[Entry, ...] = ()
    acknowledged: tuple[Entry, ...] = ()

    def find(self, key: str) -> Entry | None:
        """The entry of a cause, or the one that a consequence stands in."""
        everything = (*self.entries, *self.acknowledged)
        return next((entry for entry in everything if any(one.key == key for one in entry.items)), None)


def board(items: Iterable[Item], acknowledgements: Iterable[Acknowledgement], now: datetime) -> Board:
    """Causes with their consequences under them, in order, apart from those whose acknowledgement still holds."""
    known = {one.key: one for one in acknowledgements}
    found = [_acknowledged(entry, known, now) for entry in entries(items)]
    return Board(
        entries=tuple(entry for entry in found if entry.acknowledged is None),
        acknowledged=tuple(entry for entry in found if entry.acknowledged is not None),
    )


def entries(items: Iterable[Item]) -> list[Entry]:
    """The worst first; of equal ones that with more consequences, and those that were named first."""
    by_key: dict[str, Item] = {}
    for item in items:
        by_key.setdefault(item.key, item)
    consequences: dict[str, list[Item]] = {}
    for item in by_key.values():
        root = _root(item, by_key)
        consequences.setdefault(root.key, [])
        if root is not item:
            consequences[root.key].append(item)
    found = [
        Entry(item=by_key[key], consequences=tuple(sorted(others, key=_by_severity)))
        for key, others in consequences.items()
    ]
    return sorted(found, key=lambda entry: (-entry.severity, -len(entry.consequences)))


def shorten(entries: Iterable[Entry], most: int, unread: Mapping[str, int]) -> Iterator[Entry | Others]:
    """Entries in order, the first few of each kind and severity; in place of the others, how many there are.

    `unread` are the numbers of entries of a kind that exist beyond those given.
    """
    groups: dict[tuple[int, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((-entry.severity, entry.item.kind), []).append(entry)
    rest = dict(unread)
    last = {kind: severity for severity, kind in groups}
    for (severity, kind), found in groups.items():
        yield from found[:most]
        if hidden := len(found[most:]) + (rest.pop(kind, 0) if last[kind] == severity else 0):
            yield Others(kind=kind, count=hidden)
    yield from (Others(kind=kind, count=count) for kind, count in rest.items() if count)


def blame(counts: Mapping[str, int], total: int) -> tuple[tuple[str, ...], int]:
    """The causes of a group of `total` members, and how many are their work.

    `counts` has the members that are known to be the work of a cause. A cause is blamed for at least half of the
    members, or for very many: only the newest are looked at.
    """
    blamed = {key: count for key, count in counts.items() if count >= min(total / 2, MANY)}
    return tuple(sorted(blamed, key=lambda key: (-blamed[key], key))), max(blamed.values(), default=total)


def why_invalid(entry: Entry, word: Acknowledgement, now: datetime) -> str:
    """Why an acknowledgement no longer holds; empty if it does."""
    if now >= word.until:
        return "its time is over"
    if _has_another_cause(entry.item, word):
        return "it has another cause"
    if entry.severity > word.severity:
        return "it is more severe"
    # Beyond a cap nobody knows whether it has grown.
    if not word.is_capped and (entry.is_capped or entry.count > word.count * GROWTH):
        return "it affects more"
    return ""


def _has_another_cause(item: Item, word: Acknowledgement) -> bool:
    """Of what was acknowledged together any part may end: another cause is one that is newer than all of them."""
    return item.cause > word.cause if word.key == item.gathered_as else item.cause != word.cause


def _acknowledged(entry: Entry, known: Mapping[str, Acknowledgement], now: datetime) -> Entry:
    """The entry with the word on its item, or on those that it was gathered with, if one still holds."""
    words = (known[key] for key in (entry.item.key, entry.item.gathered_as) if key in known)
    word = next((one for one in words if not why_invalid(entry, one, now)), None)
    return Entry(item=entry.item, consequences=entry.consequences, acknowledged=word)


def _root(item: Item, by_key: Mapping[str, Item]) -> Item:
    """The cause that has no cause of its own. Items that name each other stay apart."""
    seen = {item.key}
    root = item
    while cause := next(_causes(root, by_key), None):
        if cause.key in seen:
            return item
        seen.add(cause.key)
        root = cause
    return root


def _causes(item: Item, by_key: Mapping[str, Item]) -> Iterator[Item]:
    return (by_key[key] for key in item.caused_by if key in by_key)


def _amount(unit: tuple[str, str], items: Iterable[Item]) -> str:
    found = list(items)
    count = sum(one.count for one in found)
    more = "+" if any(one.is_capped for one in found) else ""
    return f"{count:,}{more} {unit[0] if count == 1 and not more else unit[1]}"


def _by_severity(item: Item) -> int:
    return -item.severity

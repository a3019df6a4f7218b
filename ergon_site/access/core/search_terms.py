"""Parses the search text of a list: `pipeline:invoices state:failed payload.order.id:42 after:2h timeout`."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cached_property

# As a name of a list: its searches reach into payloads, under the name `payload.` and the path.
PAYLOAD = "payload."
# Each word is looked for in many rows.
MOST_WORDS = 8
QUOTED = re.compile(r'"([^"]*)"')
PIECE = re.compile(r'\s*(?:([A-Za-z_][\w.-]*):)?("[^"]*"(?!\S)|\S*)')
IN_PAYLOAD = re.compile(r'\s*(payload\.[^:"]+):("[^"]*"(?!\S)|\S*)', re.IGNORECASE)
AGO = re.compile(r"(\d{1,4})([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a search: the value of a filter or, without a name, words. `typed` is how it was written."""

    name: str
    value: str
    typed: str


@dataclass(frozen=True)
class Search:
    """A search text in parts; `names` are the filters that its list has."""

    terms: tuple[Term, ...]
    names: tuple[str, ...]

    @cached_property
    def filters(self) -> dict[str, str]:
        return {term.name: term.value for term in self.terms if term.name}

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(term.value for term in self.terms if not term.name and term.value)

    @property
    def text(self) -> str:
        """The words as one text: an id may contain blanks."""
        return " ".join(self.words)

    def without(self, term: Term) -> str:
        """The search text without one of its parts."""
        return " ".join(one.typed for one in self.terms if one is not term)

    @property
    def note(self) -> str:
        """What was not understood, in words; empty if all was."""
        for term in self.terms:
            if term.name and not term.value:
                return f"{term.name}: needs a value."
            if term.name and [one.name for one in self.terms].count(term.name) > 1:
                return f"{term.name} is there more than once; the last one counts."
        unknown = [found[1] for term in self.terms if not term.name and (found := PIECE.fullmatch(term.typed))]
        for name in filter(None, unknown):
            alike = get_close_matches(name.lower(), self.names, n=1)
            guess = f" Did you mean {alike[0]}:?" if alike else ""
            known = ", ".join(f"{one}path" if one == PAYLOAD else one for one in self.names)
            return f"There is no filter {name}: here, so it was searched as text.{guess} Filters: {known or 'none'}."
        return ""


def parse(text: str, names: Collection[str]) -> Search:
    """The parts of a search text. A name that the list does not have is text: ids may contain colons."""
    terms: list[Term] = []
    place = 0
    while text[place:].strip():
        found = _in_payload(text, place, names) or PIECE.match(text, place)
        assert found is not None  # noqa: S101 (a piece may be empty)
        name, value, typed = (found[1] or "").lower(), found[2], found[0].strip()
        place = found.end()
        if PAYLOAD in names and name.startswith(PAYLOAD) and name != PAYLOAD:
            # As it is written: paths tell capitals apart, and a value in quotes is a text in JSON.
            terms.append(Term(f"{PAYLOAD}{found[1][len(PAYLOAD) :].strip()}", value, typed))
        elif name in names and name != PAYLOAD:
            terms.append(Term(name, _plain(value), typed))
        elif terms and _goes_on(terms[-1]):
            last = terms.pop()
            terms.append(Term(last.name, f"{last.value}{found[0]}".strip(), f"{last.typed}{found[0]}"))
        else:
            terms.append(Term("", _plain(typed), typed))
    return Search(tuple(terms), tuple(names))


def moment(text: str, now: datetime) -> datetime:
    """The time that is meant: `2h` ago, or a date or time, in UTC unless it says where."""
    if ago := AGO.fullmatch(text.lower()):
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        told = datetime.fromisoformat(text)
        return told.replace(tzinfo=UTC) if told.tzinfo is None else told.astimezone(UTC)
    except (ValueError, OverflowError):
        msg = f"a time looks like 30m, 2h, 7d, 2026-01-31 or 2026-01-31T12:00, not {text!r}"
        raise ValueError(msg) from None


def _in_payload(text: str, place: int, names: Collection[str]) -> re.Match[str] | None:
    """A path into payloads and its value. A path may contain blanks, but no filter of the list."""
    found = IN_PAYLOAD.match(text, place) if PAYLOAD in names else None
    return found if found and found[1].split()[-1].lower() not in names else None


def _goes_on(term: Term) -> bool:
    """Whether words that follow belong to the value: that of a path may contain blanks without being in quotes."""
    return term.name.startswith(PAYLOAD) and not QUOTED.fullmatch(term.value)


def _plain(value: str) -> str:
    quoted = QUOTED.fullmatch(value)
    return quoted[1] if quoted else value

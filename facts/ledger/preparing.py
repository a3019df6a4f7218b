"""Many drafts become entries as they are asked for; those that are no facts keep their places, with the refusal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from facts.core.errors import FactError
from facts.ledger.entries import Entry, prepare

PORTION = 340


class Preparing:
    """Drafts on their way into a buffer."""

    def __init__(self, drafts: Sequence[Mapping[str, Any] | Entry]) -> None:
        self._prepared: list[Entry | FactError] = []
        self._drafts = iter(drafts)

    def portions(self) -> Iterator[list[Entry]]:
        """Entries, some at a time; each portion is prepared when it is asked for."""
        while portion := self._next(PORTION):
            yield portion

    def entries(self) -> list[Entry]:
        """All of them, those of the portions included."""
        self._next(None)
        return [one for one in self._prepared if isinstance(one, Entry)]

    def results(self, written: Sequence[Any]) -> list[Any]:
        """What came of the entries, and between them the refusals, in the order of the drafts."""
        outcomes = iter(written)
        return [next(outcomes) if isinstance(one, Entry) else one for one in self._prepared]

    def _next(self, most: int | None) -> list[Entry]:
        portion: list[Entry] = []
        for draft in self._drafts:
            try:
                entry = draft if isinstance(draft, Entry) else prepare(draft)
            except FactError as error:
                self._prepared.append(error)
                continue
            self._prepared.append(entry)
            portion.append(entry)
            if len(portion) == most:
                break
        return portion

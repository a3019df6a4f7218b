"""Many drafts become entries as they are asked for; those that are no facts keep their places, with the refusal."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from facts.core.errors import FactError
from facts.ledger.entries import Entry, prepare


class Preparing:
    """Drafts on their way into a buffer."""

    def __init__(self, drafts: Sequence[Mapping[str, Any] | Entry]) -> None:
        self._prepared: list[Entry | FactError] = []
        self._drafts = iter(drafts)

    def stream(self) -> Iterator[Entry]:
        """Entries, each prepared when it is asked for."""
        for draft in self._drafts:
            try:
                entry = draft if isinstance(draft, Entry) else prepare(draft)
            except FactError as error:
                self._prepared.append(error)
                continue
            self._prepared.append(entry)
            yield entry

    def entries(self) -> list[Entry]:
        """All of them, those of the stream included."""
        for _ in self.stream():
            pass
        return [one for one in self._prepared if isinstance(one, Entry)]

    def results(self, written: Sequence[Any]) -> list[Any]:
        """What came of the entries, and between them the refusals, in the order of the drafts."""
        outcomes = iter(written)
        return [next(outcomes) if isinstance(one, Entry) else one for one in self._prepared]

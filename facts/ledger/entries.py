"""A fact on its way into a buffer: checked, and in its canonical form."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import orjson

from facts.canonical import canonical, content_of, size_of
from facts.conf import settings
from facts.core import drafts
from facts.core.drafts import Reference
from facts.core.errors import PayloadTooLargeError
from facts.models import Fact

FIELDS = ("message_id", "subject", "predicate", "correlation_id", "causation_id", "content", "digest")


class Entry(NamedTuple):
    """A fact as it is stored."""

    from_zone: str
    to_zone: str
    message_id: str
    subject: str
    predicate: str
    correlation_id: str | None
    causation_id: str | None
    text: str
    digest: str
    references: tuple[Reference, ...]
    size: int
    transaction_id: str | None = None  # the transaction whose handler appends it

    @classmethod
    def from_row(cls, row: Fact, from_zone: str, to_zone: str) -> Self:
        """The entry that a row of the store buffer was written from, without its references."""
        columns = (row.message_id, row.subject, row.predicate, row.correlation_id, row.causation_id)
        return cls(from_zone, to_zone, *columns, row.content, row.digest, (), size_of(row.content))

    @property
    def zones(self) -> tuple[str, str]:
        return self.from_zone, self.to_zone

    @property
    def fields(self) -> dict[str, str | None]:
        """The columns of an entry in either buffer."""
        return dict(zip(FIELDS, self.columns, strict=True))

    @property
    def columns(self) -> tuple[str | None, ...]:
        """The same, without the names."""
        return self[2:9]

    def row(self, place: int) -> dict[str, Any]:
        """For the statement: short names, since there is one of each in every row, and the text as the JSON it is."""
        return {
            "o": place,
            "m": self.message_id,
            "s": self.subject,
            "p": self.predicate,
            "co": self.correlation_id,
            "ca": self.causation_id,
            "t": orjson.Fragment(self.text),
            "d": self.digest,
            **({"tx": self.transaction_id} if self.transaction_id else {}),
        }


def prepare(draft: Mapping[str, Any], *, is_stored: bool = False) -> Entry:
    """`{envelope, fact}` as an entry; refuses what is no fact, by the name of its fault.

    Of a fact that is stored elsewhere some numbers are taken that no producer may send any more.
    """
    limits = settings().limits
    drafts.check(draft, limits)
    envelope, fact = draft["envelope"], draft["fact"]
    numbers = [envelope["produced_at_unix_ms"], fact["object_json"]]
    text, digest, size = content_of(draft, numbers, is_stored=is_stored)
    # The whole is larger than its parts: only a large whole needs a second look.
    if size > limits.object_json:
        own_size = len(canonical(fact["object_json"], is_stored=is_stored))
        if own_size > limits.object_json:
            taken = f"object_json takes {own_size:,} bytes; {limits.object_json:,} are allowed"
            msg = f"{taken}: store it as an artifact and refer to it"
            raise PayloadTooLargeError(msg, "/fact/object_json")
    if size > drafts.LONGEST_INDEXED:
        drafts.check_indexed(draft)
    return Entry(
        envelope["from_zone"],
        envelope["to_zone"],
        envelope["message_id"],
        fact["subject"],
        fact["predicate"],
        envelope.get("correlation_id"),
        envelope.get("causation_id"),
        text,
        digest,
        drafts.references_in(fact, is_stored=is_stored) if drafts.may_refer(text) else (),
        size,
    )

"""The unit of work: immutable, opaque to the engines, the same at every attempt."""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Transaction:
    """A unit of work. The id identifies it, wherever it travels."""

    id: str
    payload: Any
    metadata: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    correlation_id: str | None = None
    parent_id: str | None = None
    source: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    trace_context: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._require("id", isinstance(self.id, str) and self.id != "", "a text that is not empty")
        self._require("metadata", isinstance(self.metadata, Mapping), "an object")
        self._require("trace_context", isinstance(self.trace_context, Mapping), "an object")
        self._require("created_at", isinstance(self.created_at, datetime), "a time")

    def _require(self, name: str, is_right: bool, what: str) -> None:  # noqa: FBT001
        if not is_right:
            msg = f"Transaction.{name} must be {what}, not {getattr(self, name)!r}"
            raise ValueError(msg)

    def to_json(self) -> str:
        # Of its own fields: what a queue has added to it stays with the queue.
        values = {one.name: getattr(self, one.name) for one in fields(Transaction)}
        plain = {"metadata": dict(self.metadata), "trace_context": dict(self.trace_context)}
        return json.dumps({**values, **plain, "created_at": self.created_at.isoformat()})

    @classmethod
    def from_json(cls, text: str | bytes) -> "Transaction":
        """The transaction that `to_json` wrote; a missing field takes its default, an unknown one is refused."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: Any) -> "Transaction":
        """The same, from JSON that has been read already."""
        if not isinstance(values, dict):
            msg = f"a transaction must be a JSON object, not {type(values).__name__}"
            raise ValueError(msg)  # noqa: TRY004 (every refusal is a ValueError)
        known = {one.name for one in fields(cls)}
        if unknown := sorted(set(values) - known):
            msg = f"a transaction has no field {unknown[0]!r}; there are: {', '.join(sorted(known))}"
            raise ValueError(msg)
        if missing := {"id", "payload"} - set(values):
            msg = f"a transaction needs the field {min(missing)!r}"
            raise ValueError(msg)
        if isinstance(values.get("created_at"), str):
            values = {**values, "created_at": datetime.fromisoformat(values["created_at"])}
        return cls(**values)

"""JSON Lines become drafts of transactions; a line that cannot is refused by its number."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import IO, Any, NamedTuple

from engines.core.errors import EngineError
from engines.transactions import Draft, payloads

FIELDS = ("payload", "id", "priority", "available_at", "dedupe_key", "correlation_id", "metadata")
LONGEST_LINE = 16 * 1024 * 1024


class LineError(EngineError):
    def __init__(self, number: int, why: object) -> None:
        super().__init__(f"line {number}: {why}")


class Line(NamedTuple):
    number: int
    draft: Draft


def read(file: IO[bytes]) -> Iterator[Line]:
    """The drafts of a file, one by one; blank lines are passed over."""
    for number in count(1):
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise LineError(number, f"longer than {LONGEST_LINE:,} bytes")
        if not line.strip():
            continue
        try:
            made = _draft(payloads.decode(line.decode("utf-8-sig")))
        except UnicodeDecodeError as error:
            raise LineError(number, f"not UTF-8 at byte {error.start + 1}") from None
        except RecursionError:
            raise LineError(number, "nested too deeply") from None
        except ValueError as error:
            raise LineError(number, error) from None
        yield Line(number, made)


def _draft(value: Any) -> Draft:
    """The draft that a JSON value says."""
    if not isinstance(value, dict):
        msg = "must be an object with a payload"
        raise ValueError(msg)  # noqa: TRY004 (every refusal is a ValueError)
    if unknown := [name for name in value if name not in FIELDS]:
        msg = f"unknown field {unknown[0]!r}; there are: {', '.join(FIELDS)}"
        raise ValueError(msg)
    if "payload" not in value:
        msg = "has no payload"
        raise ValueError(msg)
    if (text := value.get("available_at")) is not None:
        with suppress(TypeError, ValueError, OverflowError):
            time = datetime.fromisoformat(text)
            value["available_at"] = time.astimezone(UTC) if time.tzinfo else None
        if not isinstance(value["available_at"], datetime):
            msg = f"available_at must be a time with a zone, such as 2030-01-31T08:00:00Z, not {text!r}"
            raise ValueError(msg)
    return Draft(**value)

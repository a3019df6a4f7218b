"""Transactions as JSON Lines: one object a line, read from one stream and written to another."""

from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from threading import Lock
from typing import Any, TextIO

from engines.connectors.base import Connector
from engines.tasks.transaction import Transaction

LONGEST_LINE = 16 * 1024 * 1024


class JsonLinesConnector(Connector):
    """Reads transactions from `source` and writes them to `sink`, a line each, as `Transaction.to_json` has them."""

    def __init__(self, source: TextIO | None = None, sink: TextIO | None = None) -> None:
        self._source, self._sink = source, sink
        self._is_escaped = _escape_bytes(source)
        self._line, self._fault = 0, ""
        self._reading, self._writing = Lock(), Lock()
        self._returned: list[Transaction] = []

    def fetch_transactions(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        """The next ones. A line that is no transaction is refused by its number; those before it are not lost."""
        with self._reading:
            batch, self._returned = self._returned[:batch_size], self._returned[batch_size:]
            if self._fault and batch:
                return batch
            try:
                while len(batch) < batch_size and (transaction := self._read()) is not None:
                    batch.append(transaction)
            except ValueError:
                self._returned = batch + self._returned
                raise
            return batch

    def dispatch_transactions(self, transactions: Sequence[Transaction]) -> int:
        if self._sink is None:
            msg = "this JSON Lines connector has no sink to write to"
            raise ValueError(msg)
        text = "".join(f"{transaction.to_json()}\n" for transaction in transactions)
        with self._writing:
            self._sink.write(text)
            self._sink.flush()
        return len(transactions)

    def release(self, transactions: Sequence[Transaction]) -> None:
        self._returned = [*transactions, *self._returned]

    def _read(self) -> Transaction | None:
        while line := self._next_line(LONGEST_LINE + 1):
            self._line += 1
            if len(line) > LONGEST_LINE:
                while line and not line.endswith("\n"):
                    line = self._next_line(LONGEST_LINE)
                msg = f"line {self._line} is longer than {LONGEST_LINE:,} characters"
                raise ValueError(msg)
            if self._is_escaped:
                self._refuse_escaped(line)
            if line.strip():
                try:
                    return Transaction.from_json(line)
                except (ValueError, TypeError, RecursionError) as error:
                    msg = f"line {self._line} is not a transaction: {error}"
                    raise ValueError(msg) from None
        return None

    def _next_line(self, longest: int) -> str:
        if self._fault:
            raise ValueError(self._fault)
        try:
            return "" if self._source is None else self._source.readline(longest)
        except UnicodeDecodeError as error:
            # The stream has lost what it had read ahead: its next line is not the next one of the file.
            self._fault = f"nothing can be read behind line {self._line}: {error}"
            raise ValueError(self._fault) from error

    def _refuse_escaped(self, line: str) -> None:
        try:
            line.encode()
        except UnicodeEncodeError as error:
            msg = f"line {self._line} cannot be decoded at character {error.start + 1}"
            raise ValueError(msg) from None


def _escape_bytes(source: TextIO | None) -> bool:
    """Have bytes that cannot be decoded escaped, so that they spoil one line; False if the stream does not do that."""
    if not isinstance(source, TextIOWrapper):
        return False
    with suppress(ValueError):  # it has been read from
        if source.errors == "strict":
            source.reconfigure(errors="surrogateescape")
    return source.errors == "surrogateescape"

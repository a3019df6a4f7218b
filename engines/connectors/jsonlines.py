"""Transactions as JSON Lines: one object a line, read from one stream and written to another."""

from collections.abc import Sequence
from threading import Lock
from typing import Any, TextIO

from engines.connectors.base import Connector
from engines.tasks.transaction import Transaction

LONGEST_LINE = 16 * 1024 * 1024


class JsonLinesConnector(Connector):
    """Reads transactions from `source` and writes them to `sink`, a line each, as `Transaction.to_json` has them."""

    def __init__(self, source: TextIO | None = None, sink: TextIO | None = None) -> None:
        self._source, self._sink = source, sink
        self._line = 0
        self._reading, self._writing = Lock(), Lock()
        self._returned: list[Transaction] = []

    def fetch_transactions(self, batch_size: int, **_extra: Any) -> list[Transaction]:
        """The next ones. A line that is no transaction is refused by its number; those before it are not lost."""
        with self._reading:
            batch, self._returned = self._returned[:batch_size], self._returned[batch_size:]
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
        while self._source is not None and (line := self._source.readline(LONGEST_LINE + 1)):
            self._line += 1
            if len(line) > LONGEST_LINE:
                while line and not line.endswith("\n"):
                    line = self._source.readline(LONGEST_LINE)
                msg = f"line {self._line} is longer than {LONGEST_LINE:,} characters"
                raise ValueError(msg)
            if line.strip():
                try:
                    return Transaction.from_json(line)
                except (ValueError, TypeError, RecursionError) as error:
                    msg = f"line {self._line} is not a transaction: {error}"
                    raise ValueError(msg) from None
        return None

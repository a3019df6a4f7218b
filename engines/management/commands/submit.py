"""`manage.py submit PIPELINE`: JSON Lines become transactions, a thousand with each statement."""

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import count, islice
from typing import IO, Any, NamedTuple

from django.core.management.base import CommandError

from engines import pipelines, transactions, workers
from engines.core.errors import EngineError
from engines.management.base import EngineCommand, json_value, warn_if_unrunnable
from engines.transactions import Draft, IdTakenError, SubmissionError, Submitted, payloads
from ergon_site.access import parameters
from ergon_site.access.cli.commands import as_json, opened
from ergon_site.access.cli.progress import ProgressBar, fraction_read

BATCH = 1000
FIELDS = ("payload", "id", "priority", "available_at", "dedupe_key", "correlation_id", "metadata")
LONGEST_LINE = 16 * 1024 * 1024
UNSET: Any = object()  # null is a payload


class LineError(EngineError):
    def __init__(self, number: int, why: object) -> None:
        super().__init__(f"line {number}: {why}")


class Line(NamedTuple):
    number: int
    draft: Draft


class Command(EngineCommand):
    help = (
        'Submit transactions to a pipeline, from JSON Lines: one object a line, {"payload": …} and any of id, priority,'
        " available_at, dedupe_key, correlation_id, metadata. Prints one id a line. A bad line is reported by its"
        " number, and nothing after it is submitted."
    )

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("pipeline", metavar="PIPELINE", help="the pipeline's name")
        source = parser.add_mutually_exclusive_group()
        source.add_argument(
            "--input", metavar="FILE", default="-", help="JSON Lines; '-', the default, is standard input"
        )
        source.add_argument(
            "--payload", metavar="JSON", type=json_value, default=UNSET, help="submit one transaction with this payload"
        )
        parser.add_argument("--check", action="store_true", help="check every line and submit nothing")

    def run(self, *, pipeline: str, input: str, payload: Any, check: bool, **_: Any) -> None:  # noqa: A002
        found = pipelines.find(pipeline)
        self._pipeline = found.name
        if not any(found.name in worker.pipelines for worker in workers.alive()):
            warn_if_unrunnable(self, found)
        self._count = self._new = 0
        if payload is not UNSET:
            self._submit([Line(1, Draft(payload))])
            return
        with opened(input) as file:
            lines = read(file)
            self._check(lines, file) if check else self._submit(lines, file)

    def _submit(self, lines: Iterable[Line], file: IO[bytes] | None = None) -> None:
        progress = ProgressBar(self.stderr, "submitted")
        try:
            for batch, trouble in _batches(lines):
                submitted, refused = self._send(batch)
                self._count += len(submitted)
                self._new += sum(one.is_new for one in submitted)
                progress.end()
                if submitted:
                    texts = (as_json(one._asdict()) if self.is_json else one.id for one in submitted)
                    self.stdout.write("\n".join(texts))
                    self.stdout.flush()
                progress.advance(len(submitted), fraction_read(file) if file else None)
                if error := refused or trouble:
                    msg = f"{error}; {self._count:,} submitted before it, nothing from it on"
                    raise CommandError(msg)
            known = self._count - self._new
            progress.conclude(f"{self._new:,} new, {known:,} already there" if known else "")
        except KeyboardInterrupt:
            self.stderr.write(f"interrupted: {self._count:,} submitted")
            raise
        finally:
            progress.end()

    def _check(self, lines: Iterable[Line], file: IO[bytes]) -> None:
        with closing(ProgressBar(self.stderr, "checked")) as progress:
            for batch, trouble in _batches(lines):
                try:
                    transactions.check(line.draft for line in batch)
                except SubmissionError as error:
                    raise LineError(batch[error.index].number, error) from None
                if trouble:
                    raise trouble
                self._count += len(batch)
                progress.advance(len(batch), fraction_read(file))
        self.tell({"checked": self._count}, f"{self._count:,} can be submitted")

    def _send(self, batch: list[Line]) -> tuple[list[Submitted], LineError | None]:
        """Submit a batch; or what stands before its first bad line, and that line's fault."""
        try:
            return transactions.submit_many(self._pipeline, [line.draft for line in batch]), None
        except (SubmissionError, IdTakenError) as error:
            before = [line.draft for line in batch[: error.index]]
            return transactions.submit_many(self._pipeline, before), LineError(batch[error.index].number, error)


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
        try:
            value["available_at"] = parameters.instant(text)
        except ValueError:
            msg = f"available_at must be a time with a zone, such as 2030-01-31T08:00:00Z, not {text!r}"
            raise ValueError(msg) from None
    return Draft(**value)


def _batches(lines: Iterable[Line]) -> Iterator[tuple[list[Line], LineError | None]]:
    """A thousand lines at a time; the last with the fault that ended the reading, if one did."""
    source = iter(lines)
    trouble = None
    while trouble is None:
        batch: list[Line] = []
        try:
            batch.extend(islice(source, BATCH))
        except LineError as error:
            trouble = error
        if not batch and trouble is None:
            return
        yield batch, trouble

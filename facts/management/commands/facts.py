"""`manage.py facts append|fetch|confirm|export|put|truncate`: the boundary of this database, for people and scripts."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from typing import IO, Any

from django.core.management.base import CommandError

from ergon_site.access.cli.commands import actor, as_json, one_line, opened
from ergon_site.access.cli.options import add_reason, add_yes, seconds, whole
from ergon_site.access.cli.progress import ProgressBar, fraction_read
from ergon_site.access.cli.tables import printable
from ergon_site.access.core import json_text
from facts import artifacts, ledger
from facts.conf import settings
from facts.core.artifacts import UNKNOWN_TYPE
from facts.core.errors import FactError, HistoryTruncatedError, InvalidFactError
from facts.ledger import Appended, Truncated, boundaries, reading
from facts.management.base import VerbsCommand, add_pair
from facts.message_ids import check_message_id
from facts.models import Boundary

BATCH = 1000
MOST = 2**53 - 1
REMOVED_MEANWHILE = "facts were removed while they were exported: the export is not complete"


class Command(VerbsCommand):
    help = "Append, fetch, confirm, export and remove facts, and store artifacts, in this database and without HTTP."

    def add_verbs(self) -> None:
        append = self.add_verb("append", help='append facts from JSON Lines: {"envelope": …, "fact": …}')
        append.add_argument(
            "--input", metavar="FILE", default="-", help="JSON Lines; '-', the default, is standard input"
        )
        fetch = self.add_verb("fetch", help="print the facts after a consumer's cursor as JSON Lines; the cursor stays")
        fetch.add_argument("consumer", metavar="CONSUMER", help="the consumer's name")
        fetch.add_argument(
            "--limit", type=whole(1, reading.MOST), default=100, metavar="N", help="at most N facts; 100 if not given"
        )
        fetch.add_argument(
            "--wait", type=seconds, default=0.0, metavar="SECONDS", help="wait up to SECONDS for the first fact"
        )
        confirm = self.add_verb("confirm", help="confirm every fact up to OFFSET: moves the consumer's cursor")
        confirm.add_argument("consumer", metavar="CONSUMER", help="the consumer's name")
        confirm.add_argument("offset", type=whole(0, MOST), metavar="OFFSET", help="the last one that is done")
        export = self.add_verb("export", help="print the facts of a boundary as JSON Lines that append takes")
        add_pair(export)
        export.add_argument("--start", type=whole(0, MOST), metavar="OFFSET", help="the first offset; all if not given")
        put = self.add_verb("put", help="store a file as an artifact, for facts to refer to")
        put.add_argument("bucket", metavar="BUCKET", help="3 to 63 of a-z, 0-9, dot and hyphen")
        put.add_argument("key", metavar="KEY", help="the artifact's key in the bucket")
        put.add_argument("file", metavar="FILE", help="the file; '-' is standard input")
        put.add_argument("--media-type", default=UNKNOWN_TYPE, metavar="TYPE", help=f"{UNKNOWN_TYPE} if not given")
        truncate = self.add_verb(
            "truncate",
            help="remove facts that are older than their boundary keeps them and that every consumer has confirmed",
        )
        truncate.add_argument(
            "--boundary", nargs=2, metavar=("FROM", "TO"), help="only this boundary; every boundary if not given"
        )
        add_yes(truncate)
        add_reason(truncate)

    def append(self, *, input: str, **_: Any) -> None:  # noqa: A002
        refused = 0
        doubts, progress = Doubts(self.stderr), ProgressBar(self.stderr, "lines read")
        with opened(input) as file, closing(progress):
            lines = _lines(file)
            while batch := list(islice(lines, BATCH)):
                appended = iter(ledger.append_many([draft for _, draft in batch if not isinstance(draft, FactError)]))
                progress.end()
                for number, draft in batch:
                    result = draft if isinstance(draft, FactError) else next(appended)
                    refused += isinstance(result, FactError)
                    self._print(number, result)
                    if not isinstance(result, FactError):
                        doubts.look_at(number, result.message_id)
                self.stdout.flush()
                progress.advance(len(batch), fraction_read(file))
            progress.conclude()
        doubts.conclude()
        if refused:
            msg = f"{refused:,} were refused"
            raise CommandError(msg)

    def fetch(self, *, consumer: str, limit: int, wait: float, **_: Any) -> None:
        page = ledger.fetch(consumer, limit=limit, wait=wait)
        for offset, content in page.facts:
            self.stdout.write(f'{{"offset":{offset},{content[1:]}')

    def confirm(self, *, consumer: str, offset: int, **_: Any) -> None:
        cursor = ledger.confirm(consumer, offset)
        self.tell({"cursor_advanced_to": cursor}, f"the cursor of {consumer} is at {cursor:,}")

    def export(self, *, from_zone: str, to_zone: str, start: int | None, **_: Any) -> None:
        boundary = boundaries.find(from_zone, to_zone)
        first = boundary.first_offset if start is None else start
        last = reading.newest(boundary)
        cursor = first - 1
        with closing(ProgressBar(self.stderr, "exported", total=max(0, last + 1 - first))) as progress:
            while facts := [fact for fact in reading.after(boundary, cursor, reading.MOST) if fact.offset <= last]:
                if first <= cursor < facts[0].offset - 1:
                    raise HistoryTruncatedError(REMOVED_MEANWHILE)
                progress.end()
                self.stdout.write("\n".join(fact.content for fact in facts))
                cursor = facts[-1].offset
                progress.advance(len(facts))
            if cursor < last:
                raise HistoryTruncatedError(REMOVED_MEANWHILE)
            progress.conclude()

    def put(self, *, bucket: str, key: str, file: str, media_type: str, **_: Any) -> None:
        with opened(file) as stream:
            artifact, is_new = artifacts.put(bucket, key, stream, media_type=media_type, by=actor())
        told = {name: getattr(artifact, name) for name in ("bucket", "key", "digest", "size", "media_type")}
        word = "new" if is_new else "repeated"
        self.tell({**told, "duplicate": not is_new}, f"{word} {artifact.digest} {artifact.size:,} bytes")

    def truncate(self, *, boundary: tuple[str, str] | None, yes: bool, reason: str, **_: Any) -> None:
        pairs = [boundary] if boundary else list(Boundary.objects.values_list("from_zone__name", "to_zone__name"))
        count = sum(ledger.truncatable(*pair) for pair in pairs)
        if count:
            noun = "fact" if count == 1 else "facts"
            self.ask_first(f"this removes {count:,} {noun} that every consumer has confirmed", yes=yes)
        with closing(ProgressBar(self.stderr, "removed", total=count)) as progress:
            told: Any = {"by": actor(), "reason": reason, "progress": progress.advance}
            done = [ledger.truncate(*pair, **told) for pair in pairs]
        self.tell([asdict(one) for one in done], [_sentence(one) for one in done] or ["there are no boundaries"])

    def _print(self, number: int, result: Appended | FactError) -> None:
        if isinstance(result, FactError):
            if self.is_json:
                self.stdout.write(
                    as_json({"line": number, "code": result.code, "detail": result.message, "pointer": result.pointer})
                )
            else:
                self.stderr.write(f"line {number}: {one_line(result)}")
            return
        told = {"offset": result.offset, "message_id": result.message_id, "duplicate": result.is_duplicate}
        word = "repeated" if result.is_duplicate else "new"
        self.stdout.write(as_json(told) if self.is_json else f"{result.offset} {word} {printable(result.message_id)}")


class Doubts:
    """Message ids that a retry may not repeat: the first of each kind is shown, the others are counted."""

    def __init__(self, output: Any) -> None:
        self._output = output
        self._seen: Counter[str] = Counter()

    def look_at(self, number: int, message_id: str) -> None:
        for doubt in check_message_id(message_id):
            self._seen[doubt] += 1
            if self._seen[doubt] == 1:
                self._output.write(f"warning: line {number}: the message id {printable(message_id)} is {doubt}")

    def conclude(self) -> None:
        for doubt, count in self._seen.items():
            if count > 1:
                self._output.write(f"warning: {count - 1:,} more like it: {doubt.partition(':')[0]}")


def _lines(file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """Number and content of each line; what is no JSON is an error in its place."""
    number, longest = 0, settings().body_limit
    while line := file.readline(longest + 1):
        number += 1
        if len(line) > longest:
            msg = f"line {number} is longer than {longest:,} bytes"
            raise CommandError(msg)
        if line.strip():
            try:
                yield number, json_text.parse(line, refuses_repeats=True)
            except json_text.MalformedJSONError as error:
                yield number, InvalidFactError(str(error))


def _sentence(truncated: Truncated) -> str:
    text = f"{truncated.boundary}: removed {truncated.removed:,}; the first offset is {truncated.first_offset:,} now"
    if truncated.held_back:
        text += f"; {truncated.held_back:,} more are held back by {', '.join(truncated.held_back_by)}"
    return text

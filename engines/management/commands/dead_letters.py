"""`manage.py dead_letters [list|show|replay|discard|…]`; what is done with whole groups stands elsewhere."""

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from typing import Any

from engines import dead_letters, transactions
from engines.core.errors import ExceptionType
from engines.core.states import LetterState
from engines.dead_letters import AS_IT_WAS
from engines.management.base import actor, json_file, moment, pretty
from engines.management.letter_groups import GroupVerbs, field_lines
from engines.models import DeadLetter, Pipeline
from engines.reads import executors
from ergon_site.access.cli.options import add_reason, whole
from ergon_site.access.cli.tables import printable

SHOWN = 50
MOST = 10_000
EVERY_STATE = "all"


class Command(GroupVerbs):
    help = (
        "List dead letters, the failures that need a decision, and replay or discard them, one by one or by group. "
        "Without a verb it lists the open ones."
    )
    default_verb = "list"

    def add_options(self, parser: ArgumentParser) -> None:
        _add_filters(parser, state=LetterState.OPEN.value, limit=SHOWN)

    def add_verbs(self) -> None:
        _add_filters(self.add_verb("list", help="list dead letters, newest first; open ones unless --state is given"))
        self._add("show", "show one dead letter with its payload and traceback")
        replay = self._add("replay", "submit its transaction again as a new one; prints the new id")
        replay.add_argument(
            "--payload", metavar="F", help="a file with the payload to use instead; '-' is standard input"
        )
        add_reason(replay)
        add_reason(self._add("discard", "close a dead letter without a replay"))
        self.add_group_verbs()
        self.add_operation_verbs()

    def list(self, *, source: str | None, category: str | None, state: str, limit: int, **_: Any) -> None:
        asked = {"source": source, "category": category, "state": None if state == EVERY_STATE else state}
        letters = DeadLetter.objects.filter(**{name: value for name, value in asked.items() if value is not None})
        rows = list(letters.defer("payload", "traceback")[:limit])
        headings = ["id", "since (UTC)", "source", "step", "category", "state", "transaction", "error"]
        self.tell([_as_json(letter) for letter in rows], self.table(headings, map(_row, rows)))

    def show(self, *, id: str, **_: Any) -> None:  # noqa: A002 (its name on the command line)
        letter = dead_letters.find(id)
        pipeline = Pipeline.objects.filter(name=letter.source).first()
        # A pipeline may hide fields of the payload: only the console reveals those.
        is_hidden = pipeline is not None and pipeline.redacted != []
        document = _as_json(letter) | {
            "traceback": letter.traceback,
            "details": letter.details,
            "payload": None if is_hidden else dead_letters.payload_of(letter),
            "is_payload_hidden": is_hidden,
        }
        is_stderr = executors.is_stderr(pipeline, letter.error_type, letter.traceback)
        self.tell(document, _lines(document, is_stderr=is_stderr))

    def replay(self, *, id: str, payload: str | None, reason: str, **_: Any) -> None:  # noqa: A002
        letter = dead_letters.find(id)
        body = json_file(payload) if payload else AS_IT_WAS
        new = transactions.replay_letter(letter.pk, by=actor(), reason=reason, payload=body)
        self.tell({"dead_letter": letter.pk, "id": new}, new)

    def discard(self, *, id: str, reason: str, **_: Any) -> None:  # noqa: A002
        letter = dead_letters.discard(dead_letters.find(id).pk, by=actor(), reason=reason)
        self.tell(_as_json(letter), f"discarded the dead letter {letter.pk} of {letter.uid}")

    def _add(self, verb: str, what: str) -> ArgumentParser:
        parser = self.add_verb(verb, help=what)
        parser.add_argument("id", metavar="ID", help="the dead letter's number, or its transaction's id")
        return parser


def _add_filters(parser: ArgumentParser, *, state: str = SUPPRESS, limit: int | str = SUPPRESS) -> None:
    nothing = SUPPRESS if state == SUPPRESS else None
    parser.add_argument(
        "--source", default=nothing, metavar="NAME", help="only dead letters of this pipeline or provider"
    )
    parser.add_argument(
        "--category", default=nothing, choices=[*ExceptionType], help="only dead letters of this category"
    )
    states = [*LetterState, EVERY_STATE]
    parser.add_argument(
        "--state", default=state, choices=states, help="only dead letters in this state; open if not given"
    )
    parser.add_argument(
        "--limit", default=limit, type=whole(1, MOST), metavar="N", help=f"list at most N; {SHOWN} if not given"
    )


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    names = ("source", "step", "category", "error_type", "message", "state", "created_at")
    settled = ("settled_at", "settled_by", "reason", "replayed_as")
    kept = {name: getattr(letter, name) for name in (*names, *settled)}
    return {"id": letter.pk, "transaction": letter.uid, "group": letter.group_id, **kept}


def _row(letter: DeadLetter) -> list[Any]:
    told = [getattr(letter, name) for name in ("source", "step", "category", "state", "uid")]
    return [letter.pk, moment(letter.created_at), *told, f"{letter.error_type}: {letter.message}"]


def _lines(document: dict[str, Any], *, is_stderr: bool) -> Iterator[str]:
    long = {"traceback", "details", "payload", "is_payload_hidden"}
    yield from field_lines({name: value for name, value in document.items() if name not in long})
    yield from ["", "details:", *pretty(document["details"])]
    if document["is_payload_hidden"]:
        yield from ["", "this pipeline hides payload fields; the console can reveal them"]
    else:
        yield from ["", "payload:", *pretty(document["payload"])]
    if document["traceback"]:
        yield from ["", "last lines on the executor's stderr:"] if is_stderr else [""]
        yield from map(printable, document["traceback"].splitlines())

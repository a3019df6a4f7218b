"""`manage.py dead_letters [list|show|replay|discard|…]`: one by one, by group, and by bulk operation."""

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterable
from functools import partialmethod
from typing import Any

from engines import dead_letters, transactions
from engines.core.errors import ExceptionType
from engines.core.states import GroupState, LetterState
from engines.dead_letters import AS_IT_WAS, bulk, bulk_replays
from engines.management.base import VerbsCommand, json_file
from engines.management.operations import as_json as operation_as_json, one_as_json, tell_begun, tell_end
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, Pipeline
from engines.reads import dead_letters as lists, executors
from ergon_site.access.cli.commands import actor, moment, pretty
from ergon_site.access.cli.options import add_reason, add_yes, whole
from ergon_site.access.cli.tables import printable

SHOWN = 50
MOST = 10_000
EVERY_STATE = "all"
LARGEST = 10**12 - 1
DECISIONS = {
    "mute": ("mute a group: it no longer needs attention; its failures are still recorded", GroupState.MUTED),
    "resolve": ("mark a group as resolved; it reopens with the next failure of this kind", GroupState.RESOLVED),
    "reopen": ("reopen a group: it needs attention again", GroupState.OPEN),
}
TURNS = {
    "pause": ("pause a bulk operation", "paused"),
    "resume": ("resume a bulk operation", "running"),
    "cancel": ("cancel a bulk operation; what it has done stays done", "cancelled"),
}


class Command(VerbsCommand):
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
        self._add_group_verbs()
        operations = self.add_verb("operations", help="list bulk operations, newest first")
        operations.add_argument(
            "--state", choices=[word for word, _ in BulkOperation.STATES], help="only those in this state"
        )
        _add_wait(_number(self.add_verb("operation", help="show the progress of one bulk operation")))
        for verb, (what, _) in TURNS.items():
            add_reason(_number(self.add_verb(verb, help=what)))

    def _add(self, verb: str, what: str) -> ArgumentParser:
        parser = self.add_verb(verb, help=what)
        parser.add_argument("id", metavar="ID", help="the dead letter's number, or its transaction's id")
        return parser

    def _add_group_verbs(self) -> None:
        groups = self.add_verb("groups", help="list groups of dead letters, most recent failure first")
        groups.add_argument("--state", choices=[*GroupState], help="only those in this state")
        _number(self.add_verb("group", help="show one group of dead letters"))
        for verb, (what, _) in DECISIONS.items():
            add_reason(_number(self.add_verb(verb, help=what)))
        replay = _number(
            self.add_verb(
                "replay-all", help="replay the open dead letters of a group: a few first, the rest at a limited rate"
            )
        )
        replay.add_argument(
            "--canary",
            type=whole(0, bulk.MOST_FIRST),
            default=1,
            metavar="N",
            help="replay N first, and the rest only if they succeed; 1 if not given",
        )
        replay.add_argument(
            "--rate", type=float, default=bulk.Terms().rate, metavar="N", help="replays per second; 10 if not given"
        )
        discard = _number(self.add_verb("discard-all", help="discard the open dead letters of a group"))
        add_yes(discard)
        for parser in (replay, discard):
            parser.add_argument(
                "--cap",
                type=whole(1, bulk.MOST),
                default=bulk.MOST,
                metavar="N",
                help=f"at most N dead letters; {bulk.MOST:,} if not given",
            )
            _add_wait(parser)
            add_reason(parser)

    def list(self, *, source: str | None, category: str | None, state: str, limit: int, **_: Any) -> None:
        asked = {"source": source, "category": category, "state": None if state == EVERY_STATE else state}
        found = list(lists.letters({name: value for name, value in asked.items() if value is not None})[:limit])
        headings = ["id", "since (UTC)", "source", "step", "category", "state", "transaction", "error"]
        names = ("id", "created_at", "source", "step", "category", "state", "transaction")
        told = [_letter_as_json(letter) for letter in found]
        rows = ([*_cells(one, names), f"{one['error_type']}: {one['message']}"] for one in told)
        self.tell(told, self.table(headings, rows))

    def show(self, *, id: str, **_: Any) -> None:  # noqa: A002 (its name on the command line)
        letter = dead_letters.find(id)
        pipeline = Pipeline.objects.filter(name=letter.source).first()
        # A pipeline may hide fields of the payload: only the console reveals those.
        is_hidden = pipeline is not None and pipeline.redacted != []
        kept, payload = _letter_as_json(letter), None if is_hidden else dead_letters.payload_of(letter)
        long = {"traceback": letter.traceback, "details": letter.details, "payload": payload}
        lines = [*_field_lines(kept), "", "details:", *pretty(letter.details)]
        if is_hidden:
            lines += ["", "this pipeline hides payload fields; the console can reveal them"]
        else:
            lines += ["", "payload:", *pretty(payload)]
        if letter.traceback:
            is_stderr = executors.is_stderr(pipeline, letter.error_type, letter.traceback)
            lines += ["", "last lines on the executor's stderr:"] if is_stderr else [""]
            lines += map(printable, letter.traceback.splitlines())
        self.tell(kept | long | {"is_payload_hidden": is_hidden}, lines)

    def replay(self, *, id: str, payload: str | None, reason: str, **_: Any) -> None:  # noqa: A002
        letter = dead_letters.find(id)
        body = json_file(payload) if payload else AS_IT_WAS
        new = transactions.replay_letter(letter.pk, by=actor(), reason=reason, payload=body)
        self.tell({"dead_letter": letter.pk, "id": new}, new)

    def discard(self, *, id: str, reason: str, **_: Any) -> None:  # noqa: A002
        letter = dead_letters.discard(dead_letters.find(id).pk, by=actor(), reason=reason)
        self.tell(_letter_as_json(letter), f"discarded the dead letter {letter.pk} of {letter.uid}")

    def groups(self, *, state: str | None, **_: Any) -> None:
        found = lists.groups({"state": state} if state else {})[:SHOWN]
        headings = ["group", "last seen (UTC)", "source", "step", "category", "state", "open", "total", "error"]
        names = ("id", "last_seen_at", "source", "step", "category", "state", "open_count", "total")
        told = [_group_as_json(one) for one in found]
        rows = ([*_cells(one, names), str(group)] for one, group in zip(told, found, strict=True))
        self.tell(told, self.table(headings, rows))

    def group(self, *, number: int, **_: Any) -> None:
        told = _group_as_json(dead_letters.find_group(number))
        self.tell(told, _field_lines(told))

    def _decide(self, verb: str, *, number: int, reason: str, **_: Any) -> None:
        group = dead_letters.decide(number, DECISIONS[verb][1], by=actor(), reason=reason)
        self.tell(_group_as_json(group), printable(f"the group {group.pk} is {group.state}: {group}"))

    mute = partialmethod(_decide, "mute")
    resolve = partialmethod(_decide, "resolve")
    reopen = partialmethod(_decide, "reopen")

    def replay_all(self, *, number: int, canary: int, rate: float, cap: int, **options: Any) -> None:
        self._begin("replay", number, bulk.Terms(canary=canary, rate=rate, cap=cap), **options)

    def discard_all(self, *, number: int, cap: int, yes: bool, **options: Any) -> None:
        if count := min(cap, dead_letters.find_group(number).open_count):
            noun = "dead letter" if count == 1 else "dead letters"
            self.ask_first(f"this discards {count:,} {noun}", yes=yes)
        self._begin("discard", number, bulk.Terms(rate=bulk.AT_ONCE, cap=cap), **options)

    def operations(self, *, state: str | None, **_: Any) -> None:
        found = list(lists.operations({"state": state} if state else {}).select_related("group")[:SHOWN])
        headings = ["operation", "begun (UTC)", "what", "state", "of", "by", "result", "reason"]
        told = [operation_as_json(one) for one in bulk_replays.with_figures(found)]
        names, counts = ("id", "created_at"), ("state", "expected", "by")
        rows = (
            [
                *_cells(one, names),
                str(operation),
                *_cells(one, counts),
                bulk_replays.tally(operation, getattr(operation, "replays", None)),
                one["note"] or one["reason"],
            ]
            for one, operation in zip(told, found, strict=True)
        )
        self.tell(told, self.table(headings, rows))

    def operation(self, *, number: int, wait: bool, **_: Any) -> None:
        if wait:
            tell_end(self, number)
            return
        told = one_as_json(bulk.find(number))
        self.tell(told, _field_lines(told))

    def _begin(self, verb: str, number: int, terms: bulk.Terms, *, reason: str, wait: bool, **_: Any) -> None:
        tell_begun(self, bulk.begin(verb, number, terms, by=actor(), reason=reason), wait=wait)

    def _turn(self, verb: str, *, number: int, reason: str, **_: Any) -> None:
        operation = bulk.turn(number, TURNS[verb][1], by=actor(), reason=reason)
        self.tell(one_as_json(operation), f"the bulk operation {operation.pk} is {operation.state}")

    pause = partialmethod(_turn, "pause")
    resume = partialmethod(_turn, "resume")
    cancel = partialmethod(_turn, "cancel")


def _add_wait(parser: ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="wait until the bulk operation has ended")


def _add_filters(parser: ArgumentParser, *, state: str = SUPPRESS, limit: int | str = SUPPRESS) -> None:
    nothing = SUPPRESS if state == SUPPRESS else None
    add = parser.add_argument
    add("--source", default=nothing, metavar="NAME", help="only dead letters of this pipeline or provider")
    add("--category", default=nothing, choices=[*ExceptionType], help="only dead letters of this category")
    states = [*LetterState, EVERY_STATE]
    add("--state", default=state, choices=states, help="only dead letters in this state; open if not given")
    add("--limit", default=limit, type=whole(1, MOST), metavar="N", help=f"list at most N; {SHOWN} if not given")


def _letter_as_json(letter: DeadLetter) -> dict[str, Any]:
    names = ("source", "step", "category", "error_type", "message", "state", "created_at")
    settled = ("settled_at", "settled_by", "reason", "replayed_as")
    kept = {name: getattr(letter, name) for name in (*names, *settled)}
    return {"id": letter.pk, "transaction": letter.uid, "group": letter.group_id, **kept}


def _cells(told: dict[str, Any], names: Iterable[str]) -> list[Any]:
    return [moment(told[name]) if name.endswith("_at") else told[name] for name in names]


def _group_as_json(group: DeadLetterGroup) -> dict[str, Any]:
    names = ("source", "step", "category", "error_type", "message", "state", "open_count", "total")
    more = ("first_seen_at", "last_seen_at", "decided_by", "decision_reason")
    return {"id": group.pk, **{name: getattr(group, name) for name in (*names, *more)}}


def _number(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument(
        "number", metavar="NUMBER", type=whole(1, LARGEST), help="the number of the group or of the bulk operation"
    )
    return parser


def _field_lines(told: dict[str, Any]) -> list[str]:
    """The fields of a document that have a value, one a line."""
    short = {name: value for name, value in told.items() if value not in (None, "", {})}
    longest = max(map(len, short))
    texts = {name: moment(value) if name.endswith("_at") else str(value) for name, value in short.items()}
    return [printable(f"{name.replace('_', ' ').ljust(longest)}  {text}") for name, text in texts.items()]

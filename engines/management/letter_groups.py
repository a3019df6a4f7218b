"""The verbs of `dead_letters` for whole groups and bulk operations."""

from argparse import ArgumentParser
from functools import partialmethod
from typing import Any

from engines import bulk, dead_letters
from engines.bulk import AT_ONCE, MOST, MOST_FIRST, Terms
from engines.core.states import GroupState
from engines.management.base import VerbsCommand, actor, moment
from engines.models import BulkOperation, DeadLetterGroup
from ergon_site.access.cli.options import add_reason, whole
from ergon_site.access.cli.tables import printable

SHOWN = 50
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


class GroupVerbs(VerbsCommand):
    """Every verb of groups and of bulk operations."""

    def add_group_verbs(self) -> None:
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
            type=whole(0, MOST_FIRST),
            default=1,
            metavar="N",
            help="replay N first, and the rest only if they succeed; 1 if not given",
        )
        replay.add_argument(
            "--rate", type=float, default=Terms().rate, metavar="N", help="replays per second; 10 if not given"
        )
        for parser in (replay, _number(self.add_verb("discard-all", help="discard the open dead letters of a group"))):
            parser.add_argument(
                "--cap",
                type=whole(1, MOST),
                default=MOST,
                metavar="N",
                help=f"at most N dead letters; {MOST:,} if not given",
            )
            add_reason(parser)

    def add_operation_verbs(self) -> None:
        operations = self.add_verb("operations", help="list bulk operations, newest first")
        operations.add_argument(
            "--state", choices=[word for word, _ in BulkOperation.STATES], help="only those in this state"
        )
        _number(self.add_verb("operation", help="show the progress of one bulk operation"))
        for verb, (what, _) in TURNS.items():
            add_reason(_number(self.add_verb(verb, help=what)))

    def groups(self, *, state: str | None, **_: Any) -> None:
        found = DeadLetterGroup.objects.filter(**{"state": state} if state else {})[:SHOWN]
        headings = ["group", "last seen (UTC)", "source", "step", "category", "state", "open", "total", "error"]
        self.tell([told_group(one) for one in found], self.table(headings, map(_group_row, found)))

    def group(self, *, number: int, **_: Any) -> None:
        told = told_group(dead_letters.find_group(number))
        self.tell(told, field_lines(told))

    def _decide(self, verb: str, *, number: int, reason: str, **_: Any) -> None:
        group = dead_letters.decide(number, DECISIONS[verb][1], by=actor(), reason=reason)
        self.tell(told_group(group), printable(f"the group {group.pk} is {group.state}: {group}"))

    mute = partialmethod(_decide, "mute")
    resolve = partialmethod(_decide, "resolve")
    reopen = partialmethod(_decide, "reopen")

    def replay_all(self, *, number: int, canary: int, rate: float, cap: int, reason: str, **_: Any) -> None:
        self._begin("replay", number, Terms(canary=canary, rate=rate, cap=cap), reason)

    def discard_all(self, *, number: int, cap: int, reason: str, **_: Any) -> None:
        self._begin("discard", number, Terms(rate=AT_ONCE, cap=cap), reason)

    def operations(self, *, state: str | None, **_: Any) -> None:
        found = BulkOperation.objects.select_related("group").filter(**{"state": state} if state else {})[:SHOWN]
        headings = ["operation", "begun (UTC)", "what", "state", "done", "skipped", "failed", "of", "by", "reason"]
        self.tell([told_operation(one) for one in found], self.table(headings, map(_operation_row, found)))

    def operation(self, *, number: int, **_: Any) -> None:
        told = told_operation(bulk.find(number))
        self.tell(told, field_lines(told))

    def _begin(self, verb: str, number: int, terms: Terms, reason: str) -> None:
        begun = bulk.begin(verb, number, terms, by=actor(), reason=reason)
        line = f"started the bulk operation {begun.pk}: {verb} of {begun.expected:,}; manage.py maintain runs it"
        self.tell(told_operation(bulk.find(begun.pk)), line)

    def _turn(self, verb: str, *, number: int, reason: str, **_: Any) -> None:
        operation = bulk.turn(number, TURNS[verb][1], by=actor(), reason=reason)
        self.tell(told_operation(operation), f"the bulk operation {operation.pk} is {operation.state}")

    pause = partialmethod(_turn, "pause")
    resume = partialmethod(_turn, "resume")
    cancel = partialmethod(_turn, "cancel")


def told_group(group: DeadLetterGroup) -> dict[str, Any]:
    names = ("source", "step", "category", "error_type", "message", "state", "open_count", "total")
    more = ("first_seen_at", "last_seen_at", "decided_by", "decision_reason")
    return {"id": group.pk, **{name: getattr(group, name) for name in (*names, *more)}}


def told_operation(operation: BulkOperation) -> dict[str, Any]:
    names = ("verb", "state", "note", "by", "reason", "filter", "expected", "cap", "canary", "rate")
    more = ("done", "skipped", "failed", "created_at", "finished_at")
    kept = {name: getattr(operation, name) for name in (*names, *more)}
    return {"id": operation.pk, "group": operation.group_id, **kept}


def _number(parser: ArgumentParser) -> ArgumentParser:
    parser.add_argument(
        "number", metavar="NUMBER", type=whole(1, LARGEST), help="the number of the group or of the bulk operation"
    )
    return parser


def _group_row(group: DeadLetterGroup) -> list[Any]:
    told = [getattr(group, name) for name in ("source", "step", "category", "state", "open_count", "total")]
    return [group.pk, moment(group.last_seen_at), *told, str(group)]


def _operation_row(operation: BulkOperation) -> list[Any]:
    counts = [getattr(operation, name) for name in ("done", "skipped", "failed", "expected")]
    told = [operation.pk, moment(operation.created_at), str(operation), operation.state]
    return [*told, *counts, operation.by, operation.note or operation.reason]


def field_lines(told: dict[str, Any]) -> list[str]:
    """The fields of a document that have a value, one a line."""
    short = {name: value for name, value in told.items() if value not in (None, "", {})}
    longest = max(map(len, short))
    texts = {name: moment(value) if name.endswith("_at") else str(value) for name, value in short.items()}
    return [printable(f"{name.replace('_', ' ').ljust(longest)}  {text}") for name, text in texts.items()]

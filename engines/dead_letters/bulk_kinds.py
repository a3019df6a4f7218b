"""What bulk operations of the engines act on: transactions, dead letters and their groups, pipelines, schedules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.db.models import Q, QuerySet

from engines import dead_letters, pipelines, schedules, transactions
from engines.core import allowed_actions
from engines.core.errors import EngineError
from engines.core.states import GroupState, LetterState, State
from engines.dead_letters import LetterSettledError, is_whole, replayer_of
from engines.dead_letters.letters import GroupUnknownError, LetterUnknownError
from engines.models import DeadLetter, DeadLetterGroup, Pipeline, Schedule, TransactionRecord
from engines.reads.dead_letters import list_groups, list_letters
from engines.reads.filters import ListingError
from engines.reads.transactions import HEAVY, NEWEST, list_transactions
from engines.schedules import ScheduleUnknownError
from engines.transactions import NotFinishedError, NotPendingError, PipelineUnknownError, TransactionUnknownError
from ergon_site.access.bulk_kinds import BulkKind, BulkVerb
from ergon_site.access.core.search_terms import PAYLOAD
from ergon_site.access.keyset import KeysetQuery

DECISIONS = {"mute": GroupState.MUTED, "resolve": GroupState.RESOLVED, "reopen": GroupState.OPEN}
PAUSED = {"paused": Q(paused_at__isnull=False), "active": Q(paused_at=None)}


def _transactions() -> QuerySet[TransactionRecord]:
    return TransactionRecord.objects.defer(*HEAVY)


def _refusals_of_transactions(verb: str, rows: Sequence[TransactionRecord]) -> list[str]:
    if verb == "cancel":
        return [
            allowed_actions.of_cancelling(State(row.state), is_requested=row.cancel_requested_at is not None)
            for row in rows
        ]
    letters = DeadLetter.objects.filter(transaction_id__in=[row.pk for row in rows])
    states = dict(letters.values_list("transaction_id", "state"))
    return [allowed_actions.of_replaying(State(row.state), states.get(row.pk)) for row in rows]


def _lock_transactions(verb: str, rows: Sequence[TransactionRecord]) -> list[TransactionRecord]:
    keys = [row.pk for row in rows]
    found = _transactions().filter(pk__in=keys).order_by("pk")
    if verb == "cancel":
        # Those first, then the counters of their pipelines.
        return sorted(found.select_for_update(), key=lambda row: row.pipeline_id)
    letters = DeadLetter.objects.filter(transaction_id__in=keys)
    prints = {letter.transaction_id: print_ for letter, print_ in _locked_letters(letters)}
    return sorted(found, key=lambda row: prints.get(row.pk, ""))


def _locked_letters(letters: QuerySet[DeadLetter]) -> list[tuple[DeadLetter, str]]:
    """Dead letters, locked by their keys, with the fingerprints by which their groups are locked after them."""
    locked = list(letters.order_by("pk").select_for_update())
    groups = DeadLetterGroup.objects.filter(pk__in={letter.group_id for letter in locked})
    prints = dict(groups.values_list("pk", "fingerprint"))
    return [(letter, prints[letter.group_id]) for letter in locked]


def _replay_transaction(row: TransactionRecord, *, by: str, reason: str) -> str:
    return transactions.replay(row.uid, by=by, reason=reason).id


def _cancel_transaction(row: TransactionRecord, *, by: str, reason: str) -> str:
    transactions.cancel(row.uid, by=by, reason=reason)
    return ""


def _find_transactions(asked: Mapping[str, str]) -> KeysetQuery:
    return list_transactions(asked, list(Pipeline.objects.only("name", "redacted")))


def _letters() -> QuerySet[DeadLetter]:
    return DeadLetter.objects.defer("payload", "traceback")


def _refusals_of_letters(verb: str, rows: Sequence[DeadLetter]) -> list[str]:
    sources = {row.source for row in rows} if verb == "replay" else set()
    known = set(Pipeline.objects.filter(name__in=sources).values_list("name", flat=True)) if sources else set()
    return [
        allowed_actions.of_settling(
            LetterState(row.state),
            can_run=verb == "discard" or row.source in known or replayer_of(row) is not None,
            is_whole=verb == "discard" or is_whole(row),
        )
        for row in rows
    ]


def _lock_letters(_: str, rows: Sequence[DeadLetter]) -> list[DeadLetter]:
    locked = _locked_letters(_letters().filter(pk__in=[row.pk for row in rows]))
    return [letter for letter, _ in sorted(locked, key=lambda found: (found[1], found[0].pk))]


def _replay_letter(row: DeadLetter, *, by: str, reason: str) -> str:
    return transactions.replay_letter(row.pk, by=by, reason=reason)


def _discard_letter(row: DeadLetter, *, by: str, reason: str) -> str:
    dead_letters.discard(row.pk, by=by, reason=reason)
    return ""


def _refusals_of_groups(verb: str, rows: Sequence[DeadLetterGroup]) -> list[str]:
    return [allowed_actions.of_deciding(GroupState(row.state), DECISIONS[verb]) for row in rows]


def _decide(state: GroupState) -> BulkVerb:
    def decide(row: DeadLetterGroup, *, by: str, reason: str) -> str:
        dead_letters.decide(row.pk, state, by=by, reason=reason)
        return ""

    return decide


def _refusals_of_turning(verb: str, rows: Sequence[Pipeline | Schedule]) -> list[str]:
    return [allowed_actions.of_pausing(verb, is_paused=row.is_paused) for row in rows]


def _turn(turn: Callable[..., object]) -> BulkVerb:
    def act(row: Pipeline | Schedule, *, by: str, reason: str) -> str:
        turn(row.name, by=by, reason=reason)
        return ""

    return act


def _by_key(rows: Callable[[], QuerySet[Any]], order: str = "pk") -> Callable[[str, Sequence[Any]], list[Any]]:
    return lambda _, found: list(
        rows().filter(pk__in=[row.pk for row in found]).order_by(order).select_for_update(of=("self",))
    )


def _pausable(rows: Callable[[], QuerySet[Any]]) -> Callable[[Mapping[str, str]], KeysetQuery]:
    """Pipelines or schedules by state and by the start of their name."""

    def find(asked: Mapping[str, str]) -> KeysetQuery:
        state = asked.get("state", "active")
        if state not in PAUSED:
            msg = f"the state is one of {', '.join(PAUSED)}"
            raise ListingError(msg, "state")
        found = rows().filter(PAUSED[state] if "state" in asked else Q(), name__startswith=asked.get("q", ""))
        return KeysetQuery(rows=found, order=("id",))

    return find


def _kept(*words: str) -> frozenset[str]:
    return frozenset({*words, "q"})


TRANSACTIONS = BulkKind(
    name="transaction",
    rows=_transactions,
    find=_find_transactions,
    words=_kept(
        *("state", "pipeline", "category", "age", "ended", "worker", "correlation"),
        *("error", "after", "before", PAYLOAD),
    ),
    key="uid",
    verbs={"replay": _replay_transaction, "cancel": _cancel_transaction},
    refusals=_refusals_of_transactions,
    lock=_lock_transactions,
    skipped_by=(LetterSettledError, NotFinishedError, NotPendingError, TransactionUnknownError),
    refused_by=(EngineError,),
)
LETTERS = BulkKind(
    name="dead_letter",
    rows=_letters,
    find=lambda asked: _whole(list_letters(asked)),
    words=_kept("state", "source", "category", "group", "error"),
    key="pk",
    verbs={"replay": _replay_letter, "discard": _discard_letter},
    refusals=_refusals_of_letters,
    lock=_lock_letters,
    skipped_by=(LetterSettledError, LetterUnknownError),
    refused_by=(EngineError,),
    label=lambda letter: letter.uid,
    scope="dead_letters:operate",
)
GROUPS = BulkKind(
    name="dead_letter_group",
    rows=DeadLetterGroup.objects.all,
    # In an order that does not change: one that fails again meanwhile is seen last, and would be passed by.
    find=lambda asked: replace(list_groups(asked), order=NEWEST),
    words=_kept("state", "source", "category", "error"),
    key="pk",
    verbs={verb: _decide(state) for verb, state in DECISIONS.items()},
    refusals=_refusals_of_groups,
    lock=_by_key(DeadLetterGroup.objects.all, "fingerprint"),
    skipped_by=(GroupUnknownError,),
    refused_by=(EngineError,),
    born="first_seen_at",
    scope="dead_letters:operate",
)
PIPELINES = BulkKind(
    name="pipeline",
    rows=Pipeline.objects.all,
    find=_pausable(Pipeline.objects.all),
    words=_kept("state"),
    key="name",
    verbs={"pause": _turn(pipelines.pause), "resume": _turn(pipelines.resume)},
    refusals=_refusals_of_turning,
    lock=_by_key(Pipeline.objects.all),
    skipped_by=(PipelineUnknownError,),
    refused_by=(EngineError,),
)
SCHEDULES = BulkKind(
    name="schedule",
    rows=Schedule.objects.all,
    find=_pausable(Schedule.objects.all),
    words=_kept("state"),
    key="name",
    verbs={"pause": _turn(schedules.pause), "resume": _turn(schedules.resume)},
    refusals=_refusals_of_turning,
    lock=_by_key(Schedule.objects.all),
    skipped_by=(ScheduleUnknownError,),
    refused_by=(EngineError,),
)


def _whole(query: KeysetQuery) -> KeysetQuery:
    """Replays ask the details of dead letters who can replay them; lists leave them out."""
    return KeysetQuery(
        rows=query.rows.defer(None).defer("payload", "traceback"), rest=query.rest, is_counted=query.is_counted
    )

"""`python -m tests.faults.rivals SCENE [GIVEN]`: processes that want the same rows at the same moment.

Prints what each process raised, one line an error; nothing if all went well.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import django

PROCESSES = multiprocessing.get_context("fork")
ROUNDS, DRAFTS = int(os.environ.get("RIVAL_ROUNDS", "5")), 300
PATIENCE = 60.0

Part = Callable[[], None]
Meeting = Callable[[], None]


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()
    scene, given = SCENES[sys.argv[1]], sys.argv[2:]
    parts = scene(*given)
    django.db.connections.close_all()
    together = PROCESSES.Barrier(len(parts))
    running = [PROCESSES.Process(target=perform, args=(part, together)) for part in parts]
    for process in running:
        process.start()
    for process in running:
        process.join()


def perform(part: Callable[[Meeting], None], together: Any) -> None:
    def meet() -> None:
        together.wait(PATIENCE)

    try:
        part(meet)
    except Exception as error:  # noqa: BLE001 (told to the test)
        together.abort()
        sys.stdout.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
        sys.stdout.flush()
    django.db.connections.close_all()


def bulk(operation_id: str) -> Sequence[Any]:
    """A bulk operation, while two people settle the same letters from the other end."""
    from engines import dead_letters, transactions
    from engines.dead_letters import bulk as operations
    from engines.models import BulkOperation, DeadLetter

    operation = BulkOperation.objects.get(pk=operation_id)
    letters = list(DeadLetter.objects.order_by("-pk").values_list("pk", flat=True))

    def advance(meet: Meeting) -> None:
        meet()
        while BulkOperation.objects.filter(pk=operation.pk, state="running").exists():
            operations.advance()

    def settle(mine: list[int]) -> Callable[[Meeting], None]:
        def act(meet: Meeting) -> None:
            verb = transactions.replay_letter if operation.verb == "replay" else dead_letters.discard
            meet()
            for letter in mine:
                try:
                    verb(letter, by="ada", reason="known")
                except dead_letters.LetterSettledError:
                    continue

        return act

    return [advance, settle(letters[::2]), settle(letters[1::2])]


def submit(by: str) -> Sequence[Any]:
    """The same ids, or the same dedupe keys, from two processes in opposite orders."""
    from engines import transactions

    def act(step: int) -> Callable[[Meeting], None]:
        def part(meet: Meeting) -> None:
            for number in range(ROUNDS):
                names = [f"{by}-{number}-{one:04}" for one in range(DRAFTS)][::step]
                meet()
                transactions.submit_many("orders", [{"payload": 1, by: name} for name in names])

        return part

    return [act(1), act(-1)]


def cross() -> Sequence[Any]:
    """The same ids under keys of their own that sort the other way: no order of the rows serves both indexes."""
    from engines import transactions

    def act(name: str, step: int) -> Callable[[Meeting], None]:
        def part(meet: Meeting) -> None:
            for number in range(ROUNDS):
                ids = [f"{number}-{one:04}" for one in range(DRAFTS)][::step]
                keys = [f"{name}-{number}-{one:04}" for one in range(DRAFTS)]
                drafts = [{"payload": 1, "id": uid, "dedupe_key": key} for uid, key in zip(ids, keys, strict=True)]
                meet()
                transactions.submit_many("orders", drafts)

        return part

    return [act("one", 1), act("two", -1)]


def rescue() -> Sequence[Any]:
    """Two processes rescue poison of two pipelines, each a part in which the pipelines come in another order."""
    from engines.transactions import claiming

    claiming.RESCUED_AT_ONCE = 40

    def act(meet: Meeting) -> None:
        meet()
        while claiming.rescue().poison:
            pass

    return [act, act]


def prune(*messages: str) -> Sequence[Any]:
    """Failures of several kinds are recorded while old ones of the same kinds are pruned."""
    from datetime import timedelta

    from engines import dead_letters, transactions
    from engines.models import DeadLetter

    def record(meet: Meeting) -> None:
        for _ in range(ROUNDS):
            meet()
            for _ in range(20):
                dead_letters.record([draft(message) for message in messages])
            meet()

    def remove(meet: Meeting) -> None:
        for _ in range(ROUNDS):
            DeadLetter.objects.update(created_at="2020-01-01T00:00:00Z")
            meet()
            transactions.prune(older_than=timedelta(days=1))
            meet()

    return [record, remove]


def draft(message: str) -> Any:
    """A failure whose kind is told by its message."""
    from engines.dead_letters import DeadLetterDraft

    about: dict[str, Any] = {"uid": "1", "step": "process", "category": "SYSTEM", "error_type": "ValueError"}
    return DeadLetterDraft(source="elsewhere", message=message, details={}, **about)


def append(*zones: str) -> Sequence[Any]:
    """Facts of several boundaries in one database transaction, in opposite orders."""
    from django.db import transaction

    from facts import ledger
    from tests.facts.drafts import draft

    def act(name: str, step: int) -> Callable[[Meeting], None]:
        def part(meet: Meeting) -> None:
            for number in range(ROUNDS):
                drafts = [draft(f"{name}-{number}-{zone}", to_zone=zone) for zone in zones][::step]
                meet()
                with transaction.atomic():
                    for one in ledger.append_many(drafts):
                        if isinstance(one, Exception):
                            raise one

        return part

    return [act("one", 1), act("two", -1)]


def embrace() -> Sequence[Any]:
    """Two verbs that lock two rows in opposite orders, and meet in between: one of them loses."""
    from django.db import transaction

    from engines.models import Pipeline
    from ergon_site.access.database.calls import retry_conflicts

    def act(*names: str) -> Callable[[Meeting], None]:
        def part(meet: Meeting) -> None:
            meetings = [meet]

            @retry_conflicts
            @transaction.atomic
            def verb() -> None:
                for name in names:
                    Pipeline.objects.select_for_update().get(name=name)
                    Pipeline.objects.filter(name=name).update(priority=1)
                    if meetings:
                        meetings.pop()()

            verb()

        return part

    return [act("orders", "invoices"), act("invoices", "orders")]


SCENES = {scene.__name__: scene for scene in (bulk, submit, cross, rescue, prune, append, embrace)}

if __name__ == "__main__":
    main()

"""A stream runs for ever: what it needs must not grow."""

import os
from typing import Any

import psutil
import pytest

import engines
from engines import Transaction
from tests.conformance.harness import Engine, Script

pytestmark = pytest.mark.once


class Endless(engines.Connector):
    """A source that never runs dry and keeps nothing."""

    def __init__(self) -> None:
        self.number = 0

    def fetch_transactions(self, batch_size: int, **_: Any) -> list[Transaction]:
        self.number += batch_size
        return [Transaction(str(self.number - index), {"n": index}) for index in range(batch_size)]

    async def fetch_transactions_async(self, batch_size: int, **_: Any) -> list[Transaction]:
        return self.fetch_transactions(batch_size)


class Quiet(Script):
    """A script that writes nothing down."""

    def answer(self, stage: str, transaction: Transaction, argument: Any) -> Any:
        return "done"


def resident() -> int:
    return int(psutil.Process(os.getpid()).memory_info().rss)


def growth(engine: Engine, count: int) -> int:
    """Bytes that a streaming loop has added by its end, once it has warmed up."""
    task = engine.task(Quiet(), {"endless": Endless()})

    def run(limit: int) -> None:
        policy = engine.policy(streaming=True, limit=limit, batch=100, concurrency=8)
        assert engine.drive(lambda: engine.start(task, [], policy)).succeeded == limit

    run(count // 10)
    before = resident()
    run(count)
    return resident() - before


@pytest.mark.parametrize("is_async", [False, True])
def test_memory_stays_flat_in_a_stream(is_async: bool) -> None:  # noqa: FBT001
    assert growth(Engine(is_consumer=True, is_async=is_async), 20_000) < 8 * 1024 * 1024


@pytest.mark.soak
@pytest.mark.parametrize("is_async", [False, True])
def test_memory_stays_flat_over_a_million_transactions(is_async: bool) -> None:  # noqa: FBT001
    grown = growth(Engine(is_consumer=True, is_async=is_async), 1_000_000)
    print(f"grown by {grown / 1024:.0f} KiB")
    assert grown < 8 * 1024 * 1024

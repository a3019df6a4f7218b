"""Tasks for tests that run real consumers: what each does is said by the payload."""

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import engines
from engines import ExceptionType, Transaction, TransactionException
from engines.models import Pipeline
from tests.broken_errors import MuteError, SlowError, UnsureError


class OrderRejected(TransactionException):
    """A decision of the task, by its class."""

    category = ExceptionType.BUSINESS


def refuse(message: str) -> NoReturn:
    """Raise an error of the task's own over another one."""
    accounts: dict[str, str] = {}
    try:
        message += accounts["account"]
    except KeyError as error:
        raise OrderRejected(message) from error
    raise AssertionError


# Results that are not JSON as they are.
ODD: dict[str, Any] = {
    "long number": {"total": 2**70, "items": [-(2**64), 1]},
    "half a character": {"name": "a\ud800", "total": 3},
    "nul": {"a\x00b": ["\x00"]},
    "nan": {"rate": float("nan"), "missing": None},
    "endless number": {"total": 10**5000},
    "large": "x" * 2**20,
}


def act(payload: dict[str, Any]) -> Any:  # noqa: C901, PLR0912 (a table of verbs)
    """Do what the payload says, in the order in which it says it."""
    for verb, value in payload.items():
        match verb:
            case "mark":
                with Path(value).open("a") as file:
                    file.write(f"{payload.get('id', '')} {os.getpid()} {time.time_ns()}\n")
            case "sleep":
                time.sleep(value)
            case "until":
                while not Path(value).exists():
                    time.sleep(0.02)
            case "fail_without":
                if not Path(value).exists():
                    msg = "not there yet"
                    raise ConnectionError(msg)
            case "at":  # the attempt that does the rest; a short name, which PostgreSQL puts first
                if engines.current_attempt().number < value:
                    if "slow" in payload:
                        raise SlowError(payload["slow"])
                    msg = f"not before attempt {value}"
                    raise ConnectionError(msg)
            case "until_lost":
                while not engines.current_attempt().is_lease_lost:
                    time.sleep(0.02)
                Path(value).touch()
            case "end":  # once that is requested; a short name as well
                while not engines.current_attempt().is_cancelled:
                    time.sleep(0.02)
            case "print":
                print(value)
            case "fail":
                raise ValueError(value)
            case "broken":
                raise {"mute": MuteError, "unsure": UnsureError}[value]
            case "leave":
                raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[value]
            case "reject":
                raise TransactionException(value, ExceptionType.BUSINESS)
            case "refuse":
                refuse(value)
            case "odd":
                return ODD[value]
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
    return payload.get("return")


@engines.task("tests.act")
class Act(engines.ConsumerTask):
    def process_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload)


@engines.task("tests.act_async")
class ActAsync(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        await asyncio.sleep(transaction.payload.pop("sleep", 0))
        return act(transaction.payload)


@engines.task("tests.count_async")
class CountAsync(engines.AsyncConsumerTask):
    """Asks the database in both ways that an event loop has: in the thread for all of Django, and in one of its own."""

    async def process_transaction(self, transaction: Transaction) -> Any:
        return await Pipeline.objects.acount() + await asyncio.to_thread(Pipeline.objects.count)


async def wait(payload: dict[str, Any]) -> None:
    """Wait for a file, and leave one if that is cancelled."""
    act({name: payload[name] for name in ("id", "mark") if name in payload})
    try:
        while not Path(payload["until"]).exists():  # noqa: ASYNC110, ASYNC240 (another process makes it)
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        Path(payload["cancelled"]).touch()  # noqa: ASYNC240 (quick)
        raise


@engines.task("tests.wait_async")
class WaitAsync(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        return await wait(transaction.payload)


@engines.task("tests.heed_async")
class HeedAsync(engines.AsyncConsumerTask):
    """Does the rest once its end is requested."""

    async def process_transaction(self, transaction: Transaction) -> Any:
        act({name: transaction.payload[name] for name in ("id", "mark") if name in transaction.payload})
        while not engines.current_attempt().is_cancelled:  # noqa: ASYNC110 (the heartbeat's thread is told)
            await asyncio.sleep(0.02)
        return act(transaction.payload.get("then", {}))


@engines.task("tests.wait_sending_async")
class WaitSendingAsync(engines.AsyncProducerTask):
    async def produce_transaction(self, transaction: Transaction) -> Any:
        return await wait(transaction.payload)


async def hang(payload: dict[str, Any]) -> Any:
    """What asyncio cannot end: a coroutine that ignores its cancellation, or a thread behind one that heeds it."""
    act({name: payload[name] for name in ("id", "mark") if name in payload})
    if payload.get("hang") == "thread":
        await asyncio.to_thread(time.sleep, 3600)
    while payload.get("hang") == "task":
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    if payload.get("hang") == "loop":
        time.sleep(3600)  # noqa: ASYNC251 (on purpose)
    return act(payload)


@engines.task("tests.hang_async")
class HangAsync(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        return await hang(transaction.payload)


@engines.task("tests.hang_sending_async")
class HangSendingAsync(engines.AsyncProducerTask):
    async def produce_transaction(self, transaction: Transaction) -> Any:
        return await hang(transaction.payload)


@engines.task("tests.handled")
class Handled(engines.ConsumerTask):
    """Has all three handlers; the exception handler fails if the payload says so."""

    def process_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload)

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        act(transaction.payload.get("then", {}))

    def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        act(transaction.payload.get("catch", {}))


@engines.task("tests.handled_async")
class HandledAsync(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload)

    async def handle_transaction_exception(self, transaction: Transaction, exc: Exception) -> None:
        act(transaction.payload.get("catch", {}))


@engines.task("tests.send")
class Send(engines.ProducerTask):
    def produce_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload)


@engines.task("tests.send_async")
class SendAsync(engines.AsyncProducerTask):
    async def produce_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload)


@engines.task("tests.act_on_fact")
class ActOnFact(engines.ConsumerTask):
    def process_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload["fact"]["object_json"])


@engines.task("tests.act_on_fact_async")
class ActOnFactAsync(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        return act(transaction.payload["fact"]["object_json"])


@engines.task("tests.announce")
class Announce(engines.ProducerTask):
    """Appends each payload as a fact."""

    facts_connector: Any

    def produce_transaction(self, transaction: Transaction) -> Any:
        return self.facts_connector.dispatch_transactions([transaction])

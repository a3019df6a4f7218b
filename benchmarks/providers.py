"""What passing the gate before a provider costs, beside the bare `UPDATE` that it cannot be cheaper than.

**Admission, 8 callers.** Eight processes ask over and over for calls of 2,000 capabilities, chosen by chance, each
with a quota. Bare: the same with psycopg by hand, `UPDATE … RETURNING` of one row by the same key, prepared, nothing
decided. Both commit, and wait for the disk, each time. One caller alone is measured too: there nothing shares a commit.

**Settlement, 8 callers.** Writes the call, its minute and the gate, in one statement; within a second a thread of each
process writes health, rates and quota. Once in eight processes, where each settles alone, and once in eight threads of
one process, which settle together.

**Waiting, 32 callers.** Four processes of eight threads. *Working*: after each admission a caller is busy with its
provider for 50 to 150 ms, as callers are, so about 320 admissions are asked for in a second. *Hammering*: nobody does
anything but ask, which saturates both cores; it says how a queue before two cores feels, and little of a gate.

**Execute.** A provider that does nothing, one caller: admitted, called, settled; beside pybreaker around tenacity in
memory. Those share nothing with other processes, count no quota, write nothing down and forget all when the process
ends: the ratio is the price of that, to be held against a provider's own milliseconds. And with the gate of an account
that all tenants share beside the tenant's own, and awaited on an event loop, which asks the database in a thread.

PostgreSQL has its durable defaults. Contenders take turns, figures are medians; nothing is asserted.
"""

import argparse
import asyncio
import itertools
import logging
import os
import random
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import goals as goals_of
from benchmarks.facts import ROOT, set_up
from benchmarks.facts.rounds import Contender, Figures, measure
from benchmarks.goals import Figure, at_most, ratio

KEYS, ROUNDS, SECONDS = 2000, 3, 3.0
DAY = 86400.0
chance = random.Random()  # noqa: S311 (nothing secret)
TABLE = """
CREATE TABLE bare_gate (id bigserial PRIMARY KEY, tenant_id varchar(100), provider_name varchar(100),
  capability varchar(100), used bigint DEFAULT 0, UNIQUE (tenant_id, provider_name, capability))
"""
BARE = """
UPDATE bare_gate SET used = used + 1 WHERE tenant_id = %s AND provider_name = %s AND capability = %s RETURNING used
"""
Call = Callable[[], Any]


def main() -> list[Figure]:
    options = _options()
    if find_spec("pybreaker") is None:
        sys.exit("compares with pybreaker, which is not installed here: make bench ARGS=providers")
    logging.disable(logging.WARNING)
    rounds, seconds = (1, 0.5) if options.quick else (ROUNDS, SECONDS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    (ROOT / "var").mkdir(exist_ok=True)
    figures = Figures()
    with TemporaryDirectory(dir=ROOT / "var", prefix="benchmark-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        set_up(folder, stack)
        fill()
        try:
            measure(contenders(seconds), figures, rounds)
        finally:
            reached = show(figures)
    return reached


def fill() -> None:
    from django.db import connection

    from providers.models import Gate

    begin = time.time() // DAY * DAY
    quota = {"quota_limit": 10**12, "quota_window": DAY, "window_start": begin, "window_end": begin + DAY}
    who = [
        dict(zip(("tenant_id", "provider_name", "capability"), key, strict=True)) for key in map(key_of, range(KEYS))
    ]
    Gate.objects.bulk_create([Gate(**one, **quota) for one in who])
    with connection.cursor() as cursor:
        cursor.execute(TABLE)
        insert = "INSERT INTO bare_gate (tenant_id, provider_name, capability) VALUES (%s, %s, %s)"
        cursor.executemany(insert, list(map(key_of, range(KEYS))))
        cursor.execute("VACUUM (ANALYZE) bare_gate, provider_gates")


def key_of(number: int) -> tuple[str, str, str]:
    return f"7b1e6f0c-0f4e-4c0f-9a52-{number:012}", "rank", f"capability-{number % 7}"


def contenders(seconds: float) -> dict[str, Contender]:
    def rate(make: Callable[[], Call], processes: int) -> Mapping[str, float]:
        return {f"{processes} at once": len(together(make, processes, 1, seconds)) / seconds}

    def waits(make: Callable[[], Call], kind: str, pause: float) -> Mapping[str, float]:
        took = sorted(together(make, 4, 8, seconds, pause))
        shares = {"p50": 50, "p95": 95, "p99": 99}
        return {f"{name}, {kind}": took[len(took) * share // 100] * 1000 for name, share in shares.items()}

    return {
        "bare UPDATE": lambda: {**rate(bare, 8), **rate(bare, 1)},
        "admission": lambda: {**rate(admission, 8), **rate(admission, 1)},
        "settlement": lambda: {**rate(settlement, 8), **rate(settlement, 1)},
        "settlement, threads": lambda: {"8 at once": len(together(settlement, 1, 8, seconds)) / seconds},
        "bare UPDATE, 32 callers": lambda: {**waits(bare, "working", 0.1), **waits(bare, "hammering", 0.0)},
        "admission, 32 callers": lambda: {**waits(admission, "working", 0.1), **waits(admission, "hammering", 0.0)},
        "nothing around it": lambda: each(nothing, seconds),
        "pybreaker and tenacity, in memory": lambda: each(in_memory, seconds),
        "execute": lambda: each(execution, seconds),
        "execute, with an account's gate": lambda: each(partial(execution, "both"), seconds),
        "aexecute": lambda: each(awaited, seconds),
    }


def bare() -> Call:
    import psycopg

    connection = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    connection.prepare_threshold = 0
    return lambda: connection.execute(BARE, key_of(chance.randrange(KEYS))).fetchall()


def admission() -> Call:
    from providers import BreakerPolicy, calls
    from providers.core.exchange import Who
    from providers.core.gate import Asked

    asked = Asked(BreakerPolicy())
    return lambda: calls.admit(Who(*key_of(chance.randrange(KEYS))), asked)


def settlement() -> Call:
    from providers import Outcome, ProviderExecutionContext, ProviderPolicy, calls
    from providers.core.breaker import Permit, Verdict
    from providers.core.exchange import Who
    from providers.core.gate import Admission, Decision
    from providers.core.steps import Settle

    context = ProviderExecutionContext(correlation_id="benchmark")
    about: dict[str, Any] = {"operation": "snapshot", "key": "k" * 64, "fingerprint": "f" * 64, "context": context}
    policy, admitted = ProviderPolicy(), Admission(Decision.ADMITTED, Permit(0), 0.0, 1)

    def call() -> None:
        ticket = calls.CallRequest(who=Who(*key_of(chance.randrange(KEYS))), policy=policy, **about)
        took = chance.uniform(0.05, 0.15)
        calls.settle(ticket, Settle(1, admitted, took, 30.0, Verdict.SUCCESS, Outcome.SUCCESS))

    return call


def nothing() -> Call:
    return dict


def in_memory() -> Call:
    import pybreaker
    import tenacity

    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)
    wait = tenacity.wait_exponential_jitter(initial=0.2, max=5)
    retrying = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=wait, reraise=True)
    return lambda: retrying(breaker.call, dict)


def execution(scope: str = "tenant") -> Call:
    provider, asked = idle(scope)

    def call() -> None:
        if not provider.execute(**asked()).ok:
            sys.exit("a call that does nothing failed")

    return call


def awaited() -> Call:
    provider, asked = idle("tenant")
    runner = asyncio.Runner()

    def call() -> None:
        if not runner.run(provider.aexecute(**asked())).ok:
            sys.exit("a call that does nothing failed")

    return call


def idle(scope: str) -> tuple[Any, Callable[[], dict[str, Any]]]:
    """A provider that does nothing, and what it is asked."""
    from providers import ProviderBase, ProviderExecutionContext

    class Idle(ProviderBase):
        provider_name, capability = f"idle-{scope}", "nothing"
        breaker_scope = pause_scope = scope

        def _execute_impl(self, **_: Any) -> dict[str, Any]:
            return {}

        async def _aexecute_impl(self, **_: Any) -> dict[str, Any]:
            return {}

    numbers = itertools.count()

    def asked() -> dict[str, Any]:
        context = ProviderExecutionContext(correlation_id=f"benchmark-{next(numbers)}")
        return {"tenant_id": key_of(0)[0], "operation": "snapshot", "payload": {"keyword": "tea"}, "context": context}

    return Idle(), asked


def each(make: Callable[[], Call], seconds: float) -> Mapping[str, float]:
    took = sorted(together(make, 1, 1, seconds / 2))
    return {"each": took[len(took) // 2] * 1e6}


def together(make: Callable[[], Call], processes: int, threads: int, seconds: float, pause: float = 0.0) -> list[float]:
    """Callers in processes of their own begin at once; how long each call took, in seconds."""
    from django.db import connections

    connections.close_all()
    waiting, go = os.pipe()
    children = []
    for _ in range(processes):
        results, told = os.pipe()
        if os.fork() == 0:
            os.close(go)
            _child(make, threads, seconds, pause, waiting, told)
        os.close(told)
        children.append(results)
    for results in children:
        os.read(results, 1)  # connected, and warm
    os.close(go)
    os.close(waiting)
    took: list[float] = []
    for results in children:
        with os.fdopen(results, "rb") as stream:
            took.extend(array("d", stream.read()))
    if any(os.wait()[1] for _ in children):
        sys.exit("a caller failed")
    return took


def _child(make: Callable[[], Call], threads: int, seconds: float, pause: float, waiting: int, told: int) -> None:
    """One process of callers; it does not return."""
    took, started, code = array("d"), threading.Event(), 1
    warm = threading.Barrier(threads + 1)
    chance.seed()

    def run() -> None:
        call, mine = make(), array("d")
        for _ in range(10):
            call()
        warm.wait()
        started.wait()
        until = time.perf_counter() + seconds
        if pause:
            time.sleep(pause * chance.random())
        while (began := time.perf_counter()) < until:
            call()
            mine.append(time.perf_counter() - began)
            if pause:
                time.sleep(pause * chance.uniform(0.5, 1.5))
        took.extend(mine)

    try:
        callers = [threading.Thread(target=run) for _ in range(threads)]
        for caller in callers:
            caller.start()
        warm.wait()
        os.write(told, b"w")
        os.read(waiting, 1)  # ends for all at once, when the parent closes its side
        started.set()
        for caller in callers:
            caller.join()
        with os.fdopen(told, "wb") as stream:
            stream.write(took.tobytes())
        code = 0 if took else 1
    finally:
        os._exit(code)


TABLES = {
    "8 at once": "8 callers at once, 2,000 keys, a second",
    "1 at once": "one caller alone, a second",
    **{f"{share}, working": f"32 callers who work between admissions, ms: {share}" for share in ("p50", "p95", "p99")},
    **{f"{share}, hammering": f"32 callers who do nothing else, ms: {share}" for share in ("p50", "p95", "p99")},
    "each": "one call of a provider that does nothing, µs",
}


def show(figures: Figures) -> list[Figure]:
    for kind, title in TABLES.items():
        print(f"\n{title}")
        for name in figures.names(kind):
            low, high = figures.spread(name, kind)
            form = ",.0f" if high > 100 else ".2f"  # noqa: PLR2004 (many or few)
            print(f"  {name:36} {figures.median(name, kind):>12{form}}  ({low:{form}} to {high:{form}})")
    reached = goals(figures)
    goals_of.show(reached)
    return reached


def goals(figures: Figures | None = None) -> list[Figure]:
    middle = (figures or Figures()).median
    a_second, milliseconds, microseconds = "{:,.0f} a second", "{:.2f} ms", "{:,.0f} µs"
    admissions, bare = middle("admission", "8 at once"), middle("bare UPDATE", "8 at once")
    alone = ratio(middle("admission", "1 at once"), middle("bare UPDATE", "1 at once"))
    crowd, threads = "admission, 32 callers", middle("settlement, threads", "8 at once")
    execute = middle("execute", "each")
    shared = ratio(middle("execute, with an account's gate", "each"), execute)
    in_memory = middle("pybreaker and tenacity, in memory", "each")
    return [
        Figure("admissions, 8 callers on 2,000 keys with quotas", admissions, 2000, form=a_second),
        Figure("admission, 8 callers / bare `UPDATE`", ratio(admissions, bare), 0.7),
        Figure("admission, one caller / bare `UPDATE`", alone, 0.7),
        at_most("admission, 95 of 100, 32 callers who work in between", middle(crowd, "p95, working"), 5, milliseconds),
        at_most(
            "admission, 95 of 100, 32 callers who do nothing else", middle(crowd, "p95, hammering"), 5, milliseconds
        ),
        Figure("settlements, 8 threads of a process", threads, 2500, form=a_second),
        Figure("settlements, 8 processes", middle("settlement", "8 at once"), 2500, form=a_second),
        at_most("`execute` of a provider that does nothing", execute, 1100, microseconds),
        at_most("`aexecute` of a provider that does nothing", middle("aexecute", "each"), 1100, microseconds),
        at_most("`execute` with an account's gate / without", shared, 1.3),
        at_most("the same with pybreaker and tenacity in memory", in_memory, None, microseconds),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks providers", description="What a provider call costs.")
    parser.add_argument("--quick", action="store_true", help="one short round: does everything run?")
    return parser.parse_args(sys.argv[1:])

"""`python -m tests.providers.racing_processes KIND …`: processes that call providers, for tests of what they share.

`admit COUNT SECONDS COST PROBES`: so many processes ask the gate at once and over and over, each until it is refused;
  prints what each was told.
`share COUNT SECONDS COST PROBES`: the same, each for a tenant of its own, all of which share an account.
`fail COUNT ROUNDS`: so many processes fail at once, after which one of them resets the breaker; so many times.
`execute COUNT KEY`: so many processes execute the same request at once; prints how each came out.
`crowd COUNT MOST SECONDS SCOPE`: so many processes execute over and over; prints how long calls ran, and each refusal.
`pace COUNT PER_SECOND BURST SECONDS`: so many processes ask a gate with a rate limit; prints when each was admitted,
  and how far the clock of the day was ahead of the steady one.
`occupy`: executes a call that does not end, in a bulkhead with a single place.
`obey`: executes once for every line that it reads, and prints the reason.
`hang`: executes a call that does not end.
`outage POLICY`: executes without a database.
`lose`: executes a call during which the database goes away.
`leave HOW`: executes once, and ends (`exit`) or dies (`die`) before anybody can have shown it.
`fork`: forks while one thread settles and another waits for it; the child settles, and prints how, and who waits.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import django


def together(count: int, race: Callable[[], Any]) -> None:
    """Let so many processes begin at once, each with a connection that is open already."""
    from django.db import connection, connections

    connections.close_all()
    start, go = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            os.close(go)
            connection.ensure_connection()
            os.read(start, 1)  # ends for all at once, when the parent closes its side
            os.write(1, f"{json.dumps(race())}\n".encode())
            os._exit(0)
    os.close(go)
    sys.exit(sum(os.wait()[1] != 0 for _ in range(count)))


def admit(count: int, seconds: float, cost: int, probes: int, *, is_shared: bool) -> None:
    from providers import BreakerPolicy, calls
    from providers.core.gate import Asked, Scope
    from tests.providers.scripted_providers import WHO

    scopes = (Scope.BOTH, Scope.BOTH) if is_shared else (Scope.TENANT, Scope.TENANT)
    asked = Asked(BreakerPolicy(half_open_max_calls=probes), cost, 60.0, *scopes)

    def race() -> list[tuple[str, float | None, int]]:
        told: Counter[tuple[str, float | None]] = Counter()
        until, is_refused = time.monotonic() + seconds, False
        who = WHO._replace(tenant_id=str(uuid4())) if is_shared else WHO
        # A busy machine may leave a process no turn for as long: each goes on until it is refused.
        while time.monotonic() < until or not is_refused:
            admission = calls.admit(who, asked)
            is_refused = is_refused or not admission.decision.is_admission
            told[admission.decision.value, admission.window_start] += 1
        return [(decision, window, times) for (decision, window), times in told.items()]

    together(count, race)


def fail(count: int, rounds: int) -> None:
    from providers import BreakerPolicy, RetryPolicy, calls
    from tests.providers.scripted_providers import WHO, scripted

    barrier = multiprocessing.get_context("fork").Barrier(count, timeout=120)

    def answer(_: Any) -> dict[str, Any]:
        barrier.wait()  # until all are admitted
        raise TimeoutError

    def race() -> int:
        policies = {"breaker_policy": BreakerPolicy(3, 3600.0), "retry_policy": RetryPolicy(max_attempts=1)}
        provider = scripted(answer, **policies)
        for _ in range(rounds):
            provider.ask()
            if barrier.wait() == 0:
                calls.reset(WHO, by="ada", reason="once more")
            barrier.wait()
        return len(provider.calls)

    together(count, race)


def execute(count: int, key: str) -> None:
    from tests.providers.scripted_providers import Scripted

    def answer(_: Any) -> dict[str, Any]:
        time.sleep(0.3)
        return {"rank": 1}

    def race() -> list[Any]:
        result = Scripted(answer).ask(idempotency_key=key)
        return [result.ok, result.replayed, result.reason_code]

    together(count, race)


def crowd(count: int, most: int, seconds: float, scope: str) -> None:
    from providers import BulkheadPolicy
    from tests.providers.scripted_providers import scripted

    ran: list[tuple[float, float]] = []

    def answer(_: Any) -> dict[str, Any]:
        began = time.monotonic()
        time.sleep(0.01)
        ran.append((began, time.monotonic()))
        return {}

    def race() -> list[Any]:
        provider = scripted(answer, bulkhead=BulkheadPolicy(most, scope))
        until, refused = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            refused += provider.ask().reason_code == "rate_limited"
        return [ran, refused]

    together(count, race)


def pace(count: int, per_second: float, burst: int, seconds: float) -> None:
    from providers import BreakerPolicy, RateLimit, calls
    from providers.core.gate import Asked
    from tests.providers.scripted_providers import WHO

    asked = Asked(BreakerPolicy(), rate_limit=RateLimit(per_second, burst))

    def race() -> list[tuple[float, float, float]]:
        admitted = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            began = time.monotonic()
            if calls.admit(WHO, asked).decision.is_admission:
                ended = time.monotonic()
                admitted.append((began, ended, time.time() - ended))
        return admitted

    together(count, race)


def occupy() -> None:
    from providers import BulkheadPolicy
    from tests.providers.scripted_providers import scripted

    def answer(_: Any) -> dict[str, Any]:
        print("calling", flush=True)
        time.sleep(600)
        return {}

    scripted(answer, bulkhead=BulkheadPolicy(1, lease=3600.0), timeout=None).ask()


def obey() -> None:
    from tests.providers.scripted_providers import Scripted

    for _ in sys.stdin:
        print(Scripted({"rank": 1}).ask().reason_code, flush=True)


def hang() -> None:
    from tests.providers.scripted_providers import scripted

    def answer(_: Any) -> dict[str, Any]:
        print("calling", flush=True)
        time.sleep(600)
        return {}

    scripted(answer, probe_lease=3600.0).ask()


def outage(policy: str, reason: str) -> None:
    from providers import BreakerPolicy, RetryPolicy
    from providers.core.errors import BY_REASON
    from tests.providers.scripted_providers import scripted

    breaker = BreakerPolicy(failure_threshold=2, open_cooldown_seconds=60)
    about = {"on_store_failure": policy, "breaker_policy": breaker, "count_rate_limited": True}
    provider = scripted({"rank": 1}, BY_REASON[reason](), **about)
    type(provider).retry_policy = RetryPolicy(max_attempts=1)
    reasons = [provider.ask().reason_code for _ in range(4)]
    print(json.dumps([reasons, len(provider.calls)]))


def lose() -> None:
    from django.db import connection

    from tests.providers.scripted_providers import scripted

    def answer(_: Any) -> dict[str, Any]:
        connection.close()
        connection.settings_dict |= {"NAME": "/nowhere/at/all", "HOST": "127.0.0.1", "PORT": "1"}
        return {"rank": 1}

    result = scripted(answer).ask()
    print(json.dumps([result.ok, result.payload]))


def leave(how: str) -> None:
    from providers.calls import rating
    from tests.providers.scripted_providers import scripted

    rating.SHOWN_AT_ONCE = 0
    assert scripted({"rank": 1}).ask().ok
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)


def fork() -> None:
    from django.db import connections

    from providers import calls
    from providers.calls import rating, settling
    from tests.processes import eventually
    from tests.providers.test_group_settling import settle_in_time, success

    rating.SHOWN_AT_ONCE = 0
    verb, may_go_on = settling.settle_together, threading.Event()

    def hold(pairs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            may_go_on.wait()
        return verb(pairs)

    scripted_gate()
    settling.group._write = hold
    threads = [threading.Thread(target=settle_in_time, args=[success()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: settling.group.is_writing and settling.group.waiting == 1, "one settles, and one waits")
    connections.close_all()
    child = os.fork()
    if child == 0:
        decision = calls.settle(*success())
        os.write(1, f"{json.dumps([decision.value, settling.group.waiting])}\n".encode())
        os._exit(0)
    os.waitpid(child, 0)
    may_go_on.set()
    for thread in threads:
        thread.join()


def scripted_gate() -> None:
    from providers.database import admitting
    from tests.providers.scripted_providers import WHO

    admitting.make_gate(WHO)


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()
    match sys.argv[1:]:
        case ["admit" | "share" as kind, count, seconds, cost, probes]:
            admit(int(count), float(seconds), int(cost), int(probes), is_shared=kind == "share")
        case ["fail", count, rounds]:
            fail(int(count), int(rounds))
        case ["execute", count, key]:
            execute(int(count), key)
        case ["crowd", count, most, seconds, scope]:
            crowd(int(count), int(most), float(seconds), scope)
        case ["pace", count, per_second, burst, seconds]:
            pace(int(count), float(per_second), int(burst), float(seconds))
        case ["outage", policy, reason]:
            outage(policy, reason)
        case ["leave", how]:
            leave(how)
        case [kind]:
            {"obey": obey, "hang": hang, "lose": lose, "occupy": occupy, "fork": fork}[kind]()


if __name__ == "__main__":
    main()

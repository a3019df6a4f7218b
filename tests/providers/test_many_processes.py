"""What processes share: one quota, one breaker, one pause, one call for each request."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from providers import BreakerPolicy, ProviderRateLimitError, RetryPolicy, calls
from providers.core.gate import Asked, Decision
from providers.models import Gate, ProviderExecutionMetric, QuotaState
from tests import warm
from tests.processes import environment, eventually, free_port, run_module
from tests.providers.scripted_providers import WHO, scripted

pytestmark = pytest.mark.django_db(transaction=True)

RACERS = 8
ONCE = RetryPolicy(max_attempts=1)
TRIPS = BreakerPolicy(failure_threshold=1, open_cooldown_seconds=60)
MODULE = "tests.providers.racing_processes"


def race(*arguments: Any, **changes: str) -> list[Any]:
    ended = run_module(MODULE, *map(str, arguments), **changes)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def told(seconds: float, *, kind: str = "admit", cost: int = 1, probes: int = 1) -> Counter[tuple[str, float | None]]:
    total: Counter[tuple[str, float | None]] = Counter()
    for one in race(kind, RACERS, seconds, cost, probes):
        for decision, window, times in one:
            total[decision, window] += times
    return total


@contextmanager
def child(kind: str) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with warm.start_module(MODULE, [kind], environment(), **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str]) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_racing_processes_get_exactly_what_a_window_allows() -> None:
    calls.set_quota(WHO, limit=50, window=86400.0, by="tests")
    total = told(1.0)
    assert sum(times for (decision, _), times in total.items() if decision == "admitted") == 50
    assert total["quota", None] > 0
    assert Gate.objects.get().used == 50


def test_racing_processes_get_exactly_what_each_window_allows_across_its_edges() -> None:
    calls.set_quota(WHO, limit=5, window=1.0, by="tests")
    for seconds in (3.2, 30.0):  # the second for a machine that stood still
        windows = {window or 0.0: n for (decision, window), n in told(seconds).items() if decision == "admitted"}
        if len(windows) >= 3:
            break
    assert len(windows) >= 3
    assert all(times == 5 for window, times in windows.items() if window not in {min(windows), max(windows)})
    assert max(windows.values()) <= 5


@pytest.mark.parametrize("probes", [1, 3])
def test_racing_processes_get_exactly_so_many_probes(probes: int) -> None:
    scripted(TimeoutError(), retry_policy=ONCE, breaker_policy=BreakerPolicy(1, 1.0)).ask()
    total = told(1.5, cost=0, probes=probes)
    assert total["probe", None] == probes
    assert total["admitted", None] == 0


def test_a_prober_that_is_killed_frees_its_place() -> None:
    scripted(TimeoutError(), retry_policy=ONCE, breaker_policy=BreakerPolicy(1, 0.0)).ask()
    with child("hang") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "calling\n"
        asked = Asked(BreakerPolicy(), cost=0, probe_lease=3600.0)
        assert calls.admit(WHO, asked).decision is Decision.CIRCUIT
        process.kill()
        process.wait()
        assert calls.admit(WHO, asked).decision is Decision.CIRCUIT
        Gate.objects.update(probes=dict.fromkeys(Gate.objects.get().probes, 1.0))  # its lease is over
        assert calls.admit(WHO, asked).decision is Decision.PROBE


def test_a_trip_in_one_process_stops_the_others_at_their_next_call() -> None:
    with child("obey") as other:
        assert ask(other) == "None"
        scripted(TimeoutError(), retry_policy=ONCE, breaker_policy=TRIPS).ask()
        assert ask(other) == "circuit_open"
        calls.reset(WHO, by="ada", reason="it is well again")
        assert ask(other) == "None"


def test_a_pause_in_one_process_pauses_the_others() -> None:
    with child("obey") as other:
        assert ask(other) == "None"
        scripted(ProviderRateLimitError(retry_after=60, http_status=429), retry_policy=ONCE).ask()
        assert ask(other) == "rate_limited"


def test_a_request_that_many_deliver_at_once_is_made_once() -> None:
    came_out = race("execute", RACERS, "order-1")
    calls_made = ProviderExecutionMetric.objects.filter(outcome="success").count()
    assert calls_made == 1
    assert sum(is_ok and not is_replayed for is_ok, is_replayed, _ in came_out) == 1
    assert {reason for is_ok, _, reason in came_out if not is_ok} <= {"dependency_unavailable"}


def test_a_call_during_which_the_database_goes_away_keeps_its_success() -> None:
    assert race("lose")[-1] == [True, {"rank": 1}]


@pytest.mark.once
@pytest.mark.parametrize(
    ("policy", "reason", "reasons", "called"),
    [
        ("closed", "timeout", ["dependency_unavailable"] * 4, 0),
        ("local", "timeout", [None, "timeout", "timeout", "circuit_open"], 3),
        ("local", "rate_limited", [None, "rate_limited", "rate_limited", "circuit_open"], 3),
    ],
)
def test_without_a_database_calls_go_as_declared(
    policy: str, reason: str, reasons: list[str | None], called: int
) -> None:
    nowhere = f"postgresql://nobody:none@127.0.0.1:{free_port()}/none"
    assert race("outage", policy, reason, DATABASE_URL=nowhere)[-1] == [reasons, called]


def test_windows_that_are_over_show_what_they_used() -> None:
    calls.set_quota(WHO, limit=30, window=1.0, by="tests")
    provider = scripted({"rank": 1})
    eventually(lambda: provider.ask().ok and QuotaState.objects.count() >= 3, "three windows")
    succeeded = ProviderExecutionMetric.objects.filter(outcome="success").count()
    assert sum(QuotaState.objects.values_list("used_count", flat=True)) == succeeded

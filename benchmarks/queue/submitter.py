"""`python -m benchmarks.queue.submitter CONTENDER`: submits to one contender and watches it, as it is asked to.

It is asked in lines of JSON, `[action, folder, number, …]`, and answers in such lines.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.queue.contenders import Contender, by_key
from benchmarks.queue.jobs import Entries

WARM_UP = 10
# Of a drain, the first tenth warms up: statements are prepared, listeners take their places.
WARM_SHARE = 10
WATCH_LIMIT = 60.0
SETTLE_LIMIT = 10.0
PAUSE = (0.004, 0.020)
# So many in a row that not each of them notifies.
BURST = 40


def main() -> None:
    contender = by_key()[sys.argv[1]]
    while line := sys.stdin.readline():
        action, folder, *numbers = json.loads(line)
        ACTIONS[action](contender, Path(folder), *numbers)


def install(contender: Contender, _folder: Path) -> None:
    contender.install()
    _answer(is_installed=True)


def drain(contender: Contender, folder: Path, count: int, singly: int) -> None:
    """Submit, some of them one by one; then watch until every job was entered and is known as done."""
    singly = min(singly, count // 5)
    entries = Entries(folder, count)
    contender.prepare()
    for number in range(WARM_UP):
        contender.submit(number)
    one_by_one = _rate(_each(contender.submit), range(WARM_UP, WARM_UP + singly))
    many = _rate(contender.submit_many, range(WARM_UP + singly, count))
    contender.settle_down()
    _answer(one_by_one=one_by_one, many=many)
    _wait_for(entries.are_complete, WATCH_LIMIT)
    _wait_for(lambda: not contender.unsettled(), SETTLE_LIMIT)
    settled, times = time.time_ns(), sorted(entries.all())
    warm = count // WARM_SHARE
    _answer(rate=(count - warm) / (times[-1] - times[warm - 1]) * 1e9, settled=(settled - times[-1]) / 1e6)


def lone(contender: Contender, folder: Path, count: int) -> None:
    """Submit to an idle worker, one at a time; how long each took to reach its handler."""
    entries = Entries(folder, count + 1)
    contender.prepare()
    contender.submit(0)
    _wait_for(lambda: entries.of(0) != 0, WATCH_LIMIT)
    time.sleep(1)
    _answer(is_idle=True)
    sys.stdin.readline()
    chance, submitted = random.Random(0), [0]  # noqa: S311 (pauses)
    for number in range(1, count + 1):
        time.sleep(chance.uniform(*PAUSE))
        submitted.append(time.time_ns())
        contender.submit(number)
    _wait_for(entries.are_complete, WATCH_LIMIT)
    took = sorted(entries.of(number) - submitted[number] for number in range(1, count + 1))
    _answer(p50=took[count // 2] / 1e6, p99=took[count * 99 // 100] / 1e6, longest=took[-1] / 1e6)


def bare(contender: Any, _folder: Path, count: int) -> None:
    contender.prepare()
    contender.create_bare(range(WARM_UP))
    _answer(one_by_one=_rate(contender.create_bare, range(count)), own=contender.own_time(count))


def bursts(contender: Contender, folder: Path, count: int) -> None:
    """Submit bursts to an idle worker; how long each job took to reach its handler, the last of a burst included."""
    entries = Entries(folder, count * BURST + 1)
    contender.prepare()
    contender.submit(0)
    _wait_for(lambda: entries.of(0) != 0, WATCH_LIMIT)
    _answer(is_idle=True)
    sys.stdin.readline()
    chance, submitted = random.Random(0), [0]  # noqa: S311 (pauses)
    for _ in range(count):
        time.sleep(0.1 + chance.uniform(*PAUSE))
        for _ in range(BURST):
            submitted.append(time.time_ns())
            contender.submit(len(submitted) - 1)
    _wait_for(entries.are_complete, WATCH_LIMIT)
    took = sorted(entries.of(number) - at for number, at in enumerate(submitted) if number)
    _answer(
        burst_p50=took[len(took) // 2] / 1e6, burst_p99=took[len(took) * 99 // 100] / 1e6, burst_longest=took[-1] / 1e6
    )


def crowd(contender: Contender, _folder: Path, rounds: int, seconds: int) -> None:
    from benchmarks.queue import crowd

    contender.prepare()
    for figures in crowd.measure(contender.prepare, contender.submit, rounds, seconds):
        _answer(**figures)


def history(contender: Contender, _folder: Path, size: int, times: int) -> None:
    from benchmarks.queue import history

    contender.prepare()
    history.grow(size)
    for _ in range(times):
        _answer(**history.measure())


ACTIONS: dict[str, Callable[..., None]] = {
    "install": install,
    "drain": drain,
    "lone": lone,
    "bare": bare,
    "bursts": bursts,
    "crowd": crowd,
    "history": history,
}


def _each(submit: Callable[[int], None]) -> Callable[[range], None]:
    def submit_each(numbers: range) -> None:
        for number in numbers:
            submit(number)

    return submit_each


def _rate(work: Callable[[range], None], numbers: range) -> float:
    started = time.perf_counter()
    work(numbers)
    return len(numbers) / (time.perf_counter() - started)


def _wait_for(condition: Callable[[], bool], limit: float) -> None:
    until = time.monotonic() + limit
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"not drained within {limit:.0f} s")
        time.sleep(0.005)


def _answer(**facts: float) -> None:
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()

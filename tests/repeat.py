"""`python -m tests.repeat [TIMES] [BUSY]`: the whole suite ten times in a row, the last five beside two busy loops.

Ends with the first run that fails. Takes more than two hours on two cores.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

LOOPS = 2


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run() -> int:
    with subprocess.Popen([sys.executable, "-m", "tests.passes"]) as passes:
        try:
            return passes.wait()
        except BaseException:
            passes.terminate()  # it puts its servers and folders away
            raise


def main(times: int = 10, busy: int = 5) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for number in range(1, times + 1):
        loops = LOOPS if number > times - busy else 0
        started = time.monotonic()
        with busy_loops(loops):
            code = run()
        took = time.monotonic() - started
        print(f"\nrun {number} of {times}, {loops} busy loops: code {code} after {took:.0f} s\n", flush=True)
        if code:
            sys.exit(code)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

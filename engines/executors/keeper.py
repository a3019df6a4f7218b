"""Outlives a worker for one purpose: to kill the executors that it leaves behind, whatever has killed it.

Run as a program of its own, by path: it loads nothing, and ends with the pipe from its worker.
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()

"""`python -m benchmarks.queue.worker CONTENDER`: a worker that is a loop of ours."""

import sys
from typing import Any

from benchmarks.queue.contenders import by_key


def main() -> None:
    contender: Any = by_key()[sys.argv[1]]
    contender.work()


if __name__ == "__main__":
    main()

"""A worker that runs one long job in an executor, for tests that kill it. Prints the keeper's pid, then waits."""

import sys

from tests.executors.pooled import HANDLERS, job, pool_of

if __name__ == "__main__":
    mark, function = sys.argv[1:]
    with pool_of(HANDLERS, pool_size=2) as crew:
        crew.run(job("warm"))
        print("ready", flush=True)
        sys.stdin.readline()
        crew.run(job("t0", function="pid"), job("t1", mark, function=function), concurrency=2)

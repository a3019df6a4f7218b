"""A worker that runs two long jobs in executors, for tests that kill it; it begins when it is told to."""

import sys

from tests.executors.executor_pools import HANDLERS, job, pool_of

if __name__ == "__main__":
    mark, function = sys.argv[1:]
    with pool_of(HANDLERS, pool_size=2) as crew:
        crew.run(job("warm"))
        print("ready", flush=True)
        sys.stdin.readline()
        crew.run(job("t0", 1000, function="sleep"), job("t1", mark, function=function), concurrency=2)

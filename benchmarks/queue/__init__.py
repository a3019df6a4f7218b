"""What the durable queue does, beside other queues and beside psycopg by hand, in the same run.

Everybody works on the same machine, one after the other in turns, round after round: nobody has the quiet minute to
themselves. A figure is the median of the rounds, and the least and the most stand beside it.

**Servers.** One PostgreSQL with its durable defaults (a commit waits for the disk), a database in it for each
contender; one Valkey that writes its journal every second, as it comes; RabbitMQ where it is installed.

**Jobs.** About 200 bytes of JSON. The handler does nothing but note when it was entered (`jobs.py`), which costs a
fraction of a microsecond.

**Drain.** The queue is emptied and filled, and its tables are vacuumed and analysed, as autovacuum would do by itself
within a minute. Only then do the workers start. The first job of each worker process waits at a gate until all
processes have one, so that starting up is no part of it, for nobody. The first tenth of the jobs warms up: statements
get prepared, listeners take their places. The rate is that of the other nine tenths: their number, by the time from
the entered handler before them to the last. How long the store then took until it knew all jobs as done is printed
too: a queue that ran ahead of its own books would show there. Ergon with and without limits and psycopg by hand, whose
ratios have goals within a few percent, drain three times in each round: single drains differ by more than that.

**Submit.** While a queue is filled: the first few hundred jobs one by one, the rest in calls of a thousand where the
contender has such a call, and one by one over one connection where it has not. Nobody listens meanwhile. The bare
ORM `create()` makes the same rows as Ergon's `submit`. The own time of `submit` is what a call within a transaction
takes beyond the statement that it executes, one and the other in turns.

**A lone transaction.** One worker waits for work; every 4 to 20 ms comes one job. Measured from before the call that
submits it to the entered handler. Contenders that poll are not asked.

**Bursts.** The same, but forty jobs come in a row, and then a pause of a tenth of a second: a process that submits so
quickly does not notify for each of them. The last job of a burst is in the figures like the first.

**Many pipelines.** One worker serves two hundred pipelines. All jobs are in one of them; the others have none.

**Waiting retries.** A thousand jobs come first that fail, and wait a minute for their next attempt. The jobs that count
come after them.

**Sixteen clients.** They submit one by one, all at once: sixteen processes, then sixteen threads of one process. The
baseline makes the same inserts and notifies nobody. Somebody listens meanwhile, and nobody takes anything.

**Claim.** The statements alone, batches of a hundred, with finished transactions in the same table: ten thousand, then
one million, or ten million with `--large`.

**Memory and idle CPU.** What the processes of one worker hold and compute once it has done one job and waits for more.

Nothing is asserted. The last table has a goal beside each ratio, and says whether it was reached.
"""

import argparse
import signal
import sys

from benchmarks.goals import Figure
from benchmarks.queue import report
from benchmarks.queue.contenders import by_key
from benchmarks.queue.measuring import Figures, Plan, Run
from benchmarks.queue.servers import running

QUICK = Plan(rounds=1, often=1, share=0.1, singly=30, lone=50, bursts=10, crowd=1, idle=1, history=(10_000, 100_000))
LARGE = Plan(history=(10_000, 10_000_000))


def main() -> list[Figure]:
    options = _options()
    plan = QUICK if options.quick else LARGE if options.large else Plan()
    chosen = {key: contender for key, contender in by_key().items() if key in options.only}
    if options.quick:
        print("  Quick: this shows that everything runs; its figures mean nothing.", flush=True)
    # Whoever ends the run ends its processes with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    figures = Figures()
    try:
        with running() as servers:
            Run(servers, plan, figures).measure(chosen)
    finally:
        # A run that is cut short shows what it has.
        reached = report.show(figures, chosen, plan)
    return reached


def goals() -> list[Figure]:
    """What a run measures, before it has."""
    return report.goals(report.Medians(Figures()), Plan())


def _options() -> argparse.Namespace:
    known = list(by_key())
    parser = argparse.ArgumentParser(prog="python -m benchmarks queue", description="Ergon's queue beside others.")
    parser.add_argument("--quick", action="store_true", help="one round with few jobs: does everything run?")
    parser.add_argument("--large", action="store_true", help="claim from a history of ten million, which takes long")
    parser.add_argument("--only", type=lambda text: text.split(","), default=known, help=f"of {','.join(known)}")
    options = parser.parse_args(sys.argv[1:])
    if unknown := [key for key in options.only if key not in known]:
        parser.error(f"no contender named {unknown[0]!r}; there are: {', '.join(known)}")
    return options

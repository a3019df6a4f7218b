import engines
from benchmarks.queue.jobs import enter


@engines.task("benchmarks.noop")
class Noop(engines.ConsumerTask):
    def process_transaction(self, transaction: engines.Transaction) -> None:
        enter(transaction.payload["number"])

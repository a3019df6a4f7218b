import engines
from benchmarks.queue.jobs import FAILING, enter


@engines.task("benchmarks.noop")
class Noop(engines.ConsumerTask):
    def process_transaction(self, transaction: engines.Transaction) -> None:
        number = transaction.payload["number"]
        if number == FAILING:
            msg = "no answer"
            raise ConnectionError(msg)
        enter(number)

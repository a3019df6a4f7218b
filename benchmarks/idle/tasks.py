"""The tasks of the idle pipelines."""

from typing import Any

import engines


@engines.task("idle.inbound")
class Inbound(engines.ConsumerTask):
    def process_transaction(self, transaction: engines.Transaction) -> Any:
        return transaction.payload


@engines.task("idle.outbound")
class Outbound(engines.ProducerTask):
    def produce_transaction(self, transaction: engines.Transaction) -> Any:
        return transaction.payload

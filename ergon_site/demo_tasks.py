"""What the demo's pipelines do: believable work, some of which fails."""

import time
from typing import Any

import engines
from engines import ExceptionType, Transaction, TransactionException


@engines.task("demo.invoices")
class ImportInvoices(engines.ConsumerTask):
    """Imports invoices. Some customers do not exist, some amounts are nonsense, and the archive is slow at times."""

    def process_transaction(self, transaction: Transaction) -> Any:
        invoice = transaction.payload
        time.sleep(invoice.get("takes", 0.02))
        if invoice["customer"] == "unknown":
            msg = f"there is no customer for invoice {invoice['number']}"
            raise TransactionException(msg, ExceptionType.BUSINESS)
        return {"booked": round(float(invoice["amount"]), 2)}

    def handle_transaction_success(self, transaction: Transaction, result: Any) -> None:
        time.sleep(0.002)


@engines.task("demo.notifications")
class SendNotifications(engines.AsyncProducerTask):
    """Sends notifications to whoever wants them."""

    async def produce_transaction(self, transaction: Transaction) -> Any:
        return {"sent_to": transaction.payload["to"]}

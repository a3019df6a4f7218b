"""What the demo's pipelines do: believable work, some of which fails."""

import time
from typing import Any

import engines
from engines import ExceptionType, Transaction, TransactionException
from providers import ProviderExecutionContext, SyntheticProvider

TENANT = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11"


class Rank(SyntheticProvider):
    """A provider that is mostly well."""

    provider_name, capability = "rank", "rank_snapshot"


class Crawl(SyntheticProvider):
    """A provider that is down, so that its breaker is open."""

    provider_name, capability = "crawl", "crawl_fetch"


MIX = {"timeout": 0.03, "dependency_unavailable": 0.05, "bad_request": 0.01}
PROVIDERS: dict[str, SyntheticProvider] = {
    "rank": Rank(seed=1, latency=(0.02, 0.2), failures=MIX, answer={"rank": 3}),
    "crawl": Crawl(seed=2, latency=(0.05, 0.1), failures={"dependency_unavailable": 1.0}),
}


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


@engines.task("demo.rankings")
class FetchRankings(engines.ConsumerTask):
    """Asks providers, which retry by themselves: what they give up is not tried again here."""

    def process_transaction(self, transaction: Transaction) -> Any:
        asked = transaction.payload
        result = PROVIDERS[asked["provider"]].execute(
            tenant_id=TENANT,
            operation="snapshot",
            payload={"keyword": asked["keyword"]},
            context=ProviderExecutionContext(correlation_id=transaction.id),
        )
        if not result.ok:
            raise TransactionException(str(result.error), ExceptionType.BUSINESS)
        return result.payload

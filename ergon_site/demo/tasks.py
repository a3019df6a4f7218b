"""The tasks of the demo's pipelines, some of which fail."""

import time
from datetime import datetime
from typing import Any

import engines
from engines import ExceptionType, Transaction, TransactionException
from facts import ledger
from providers import ProviderExecutionContext, SyntheticProvider
from providers.core.breaker import BreakerPolicy

TENANT = "7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11"
FROM, TO = "Plant A", "Enterprise"


class Rank(SyntheticProvider):
    """A provider that is mostly well."""

    provider_name, capability = "rank", "rank_snapshot"


class Crawl(SyntheticProvider):
    """A provider that is down, so that its breaker is open."""

    provider_name, capability = "crawl", "crawl_fetch"
    breaker_policy = BreakerPolicy(open_cooldown_seconds=900)


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


@engines.task("demo.releases")
class ReleaseOrder(engines.ConsumerTask):
    """The plant releases an order, and says so."""

    def process_transaction(self, transaction: Transaction) -> Any:
        return {"offset": ledger.append(release(transaction.id, transaction.created_at)).offset}


@engines.task("demo.orders")
class BookOrder(engines.ConsumerTask):
    """The enterprise books what was released."""

    def process_transaction(self, transaction: Transaction) -> Any:
        return {"booked": transaction.payload["fact"]["subject"]}


def release(order: int | str, at: datetime) -> dict[str, Any]:
    """The fact that an order was released; the same time gives the same fact."""
    return {
        "envelope": {
            "message_id": f"order-{order}-released",
            "from_zone": FROM,
            "to_zone": TO,
            "produced_at_unix_ms": int(at.timestamp() * 1000),
            "correlation_id": f"order:{order}",
            "labels": {},
        },
        "fact": {
            "subject": f"work_order:{order}",
            "predicate": "was_released",
            "object_json": {"quantity": 12, "unit": "pallets", "line": "filling-3"},
        },
    }

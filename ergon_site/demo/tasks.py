"""The tasks of the demo's pipelines, some of which fail."""

import math
import time
from datetime import datetime, timedelta
from random import Random
from typing import Any

import engines
from engines import ExceptionType, Transaction, TransactionException, transactions
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


DECLINED, NO_ANSWER = 0.03, 0.08
CUSTOMERS = (
    "Ada Lovelace",
    "Grace Hopper",
    "Alan Turing",
    "Emmy Noether",
    "Konrad Zuse",
    "Hedy Lamarr",
    "Lise Meitner",
)
ARTICLES = {"teapot": 39.9, "tea, 250 g": 12.5, "cups, set of 4": 28.0, "strainer": 6.9, "kettle": 54.0}
STREETS = ("Harbour Street", "Mill Lane", "Station Road", "Market Square")


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
        return {"sent": transaction.payload["about"]}


@engines.task("demo.shop")
class PlaceOrders(engines.ConsumerTask):
    """Stands in for the customers of a shop: places the orders of the next minute, now more, now fewer."""

    def process_transaction(self, transaction: Transaction) -> Any:
        opened, chance = transaction.created_at, _chance(transaction)
        busy = 4 + 3 * math.sin(opened.timestamp() / 600) + chance.uniform(0, 2)
        # Ids that a second attempt repeats: no order is placed twice.
        orders = [
            {
                "id": f"{transaction.id}-{number}",
                "payload": _order(f"S-{int(opened.timestamp()) // 60 % 100_000:05}{number}", chance),
                "available_at": opened + timedelta(seconds=chance.uniform(0, 60)),
                "parent_id": transaction.id,
            }
            for number in range(round(busy))
        ]
        return {"placed": len(transactions.submit_many("shop-orders", orders))}


@engines.task("demo.shop_orders")
class TakeOrder(engines.ConsumerTask):
    """Charges a card, then sends a parcel and a confirmation on their way. Some cards are declined."""

    def process_transaction(self, transaction: Transaction) -> Any:
        order, chance = transaction.payload, _chance(transaction)
        time.sleep(chance.uniform(0.02, 0.3))
        if chance.random() < DECLINED:
            msg = f"the card of order {order['number']} was declined"
            raise TransactionException(msg, ExceptionType.BUSINESS)
        customer = order["customer"]
        parcel = {"order": order["number"], "to": {name: customer[name] for name in ("name", "address")}}
        transactions.submit("shop-parcels", parcel, id=f"{transaction.id}-parcel", parent_id=transaction.id)
        mail = {"to": customer["email"], "about": f"order {order['number']}"}
        transactions.submit("notifications", mail, id=f"{transaction.id}-mail", parent_id=transaction.id)
        return {"charged": order["total"]}


@engines.task("demo.shop_parcels")
class SendParcel(engines.ConsumerTask):
    """Orders a label from a carrier, which does not answer at times and is asked again."""

    def process_transaction(self, transaction: Transaction) -> Any:
        chance = _chance(transaction, engines.current_attempt().number)
        time.sleep(chance.uniform(0.05, 0.5))
        if chance.random() < NO_ANSWER:
            msg = "the carrier does not answer"
            raise ConnectionError(msg)
        return {"label": f"{transaction.payload['order']}-DE"}


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


def _chance(transaction: Transaction, attempt: int = 1) -> Random:
    """What happens to a transaction by chance, the same each time it is looked at."""
    return Random(f"{transaction.id} {attempt}")  # noqa: S311 (a demo's dice)


def _order(number: str, chance: Random) -> dict[str, Any]:
    name = chance.choice(CUSTOMERS)
    articles = chance.sample(list(ARTICLES), chance.randint(1, 3))
    return {
        "number": number,
        "customer": {
            "name": name,
            "email": f"{name.lower().replace(' ', '.')}@mail.example",
            "address": f"{chance.choice(STREETS)} {chance.randint(1, 90)}",
        },
        "items": [{"article": one, "price": ARTICLES[one]} for one in articles],
        "total": round(sum(ARTICLES[one] for one in articles), 2),
    }


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

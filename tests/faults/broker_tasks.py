"""Tasks and connectors of consumers whose messages come from a broker that a test stops, cuts off or silences."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import engines
from engines import Transaction
from engines.conf import settings
from engines.connectors.broker import BrokerConnector
from engines.connectors.facts import FactsConnector
from tests.tasks import act

LEASE, PATIENCE = 2.0, 1.0


@engines.connector("hasty-broker")
def hasty(pipeline: str) -> BrokerConnector:
    """The broker of the settings, with a lease that lapses and a patience that ends while a test waits."""
    url = settings().broker_url
    assert url is not None
    return BrokerConnector(url, pipeline, wait=0.2, lease=LEASE, patience=PATIENCE)


@engines.connector("hasty-facts")
def hasty_facts(pipeline: str) -> FactsConnector:
    """A consumer of facts whose term is over while a test waits."""
    return FactsConnector(pipeline, term=timedelta(seconds=LEASE))


def is_first(payload: dict[str, Any]) -> bool:
    """Whether nobody has begun this before; writes down that somebody has."""
    mark = Path(payload["mark"])
    begun_before = mark.exists() and f"{payload['id']} " in mark.read_text()
    act({"id": payload["id"], "mark": str(mark)})
    return not begun_before


def content(transaction: Transaction) -> Any:
    """What a message says, or the object of a fact."""
    fact = transaction.payload.get("fact")
    return transaction.payload if fact is None else fact["object_json"]


@engines.task("tests.first_fails")
class FirstFails(engines.ConsumerTask):
    """Whoever begins it first waits for a file and does then what the payload says; any later run succeeds at once."""

    def process_transaction(self, transaction: Transaction) -> Any:
        payload = content(transaction)
        if is_first(payload):
            while not Path(payload["gate"]).exists():
                time.sleep(0.02)
            act(payload["then"])


@engines.task("tests.first_fails_async")
class FirstFailsAsync(engines.AsyncConsumerTask):
    async def process_transaction(self, transaction: Transaction) -> Any:
        payload = content(transaction)
        if is_first(payload):
            while not Path(payload["gate"]).exists():  # noqa: ASYNC110, ASYNC240 (another process makes it)
                await asyncio.sleep(0.02)
            act(payload["then"])


@engines.task("tests.publish")
class Publish(engines.ProducerTask):
    """Publishes each payload to the broker."""

    connectors: Any

    def produce_transaction(self, transaction: Transaction) -> Any:
        return self.connectors["hasty-broker"].dispatch_transactions([transaction])

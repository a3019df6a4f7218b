"""The connectors that pipelines can name without anybody registering them."""

from engines.conf import settings
from engines.connectors.broker import BrokerConnector
from engines.connectors.facts import FactsConnector
from engines.core.errors import UnrunnableError
from engines.tasks.registry import connector


@connector("broker")
def broker(pipeline: str) -> BrokerConnector:
    """The queue of the broker that has the pipeline's name."""
    url = settings().broker_url
    if url is None:
        msg = f"the pipeline {pipeline!r} takes its transactions from a broker: set CELERY_BROKER_URL to its address"
        raise UnrunnableError(msg)
    return BrokerConnector(url, pipeline)


@connector("facts")
def facts(pipeline: str) -> FactsConnector:
    """The consumer of a boundary that has the pipeline's name; a task may append to any boundary with it."""
    return FactsConnector(pipeline)

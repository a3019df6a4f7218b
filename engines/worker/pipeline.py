"""A pipeline of a worker: its connectors, its task, and the loop that runs until a stop."""

import inspect
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from engines.conf import settings
from engines.connectors.base import Connector, require_connector
from engines.connectors.database import DatabaseConnector
from engines.connectors.external import ExternalConnector
from engines.connectors.pipeline import PipelineConnector
from engines.core.errors import ConnectorError, UnrunnableError
from engines.core.policy import BatchPolicy, ConcurrencyPolicy, ConsumerPolicy
from engines.core.steps import Stop
from engines.drivers.timeouts import CANCEL_GRACE
from engines.executors.pool import Pools
from engines.executors.task import RunInExecutor
from engines.models import Pipeline
from engines.tasks import discovery, registry
from engines.tasks.consumer import AsyncConsumerMixin, ConsumerMixin
from engines.tasks.producer import AsyncProducerMixin, ProducerMixin
from engines.worker.event_loop import EventLoop
from engines.worker.heartbeat import Heartbeat
from engines.worker.shared_limit import SharedLimit

ASYNC = (AsyncConsumerMixin, AsyncProducerMixin)
NEEDED = {
    "inbound": ("consumer", (ConsumerMixin, AsyncConsumerMixin)),
    "outbound": ("producer", (ProducerMixin, AsyncProducerMixin)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a command that override the policy."""

    is_draining: bool = False
    limit: int | None = None
    timeout: float | None = None
    concurrency: int | None = None
    batch: int | None = None
    abandoned_grace: float = 30.0
    cancel_grace: float = CANCEL_GRACE

    def applied_to(self, policy: Any) -> Any:
        given = {"limit": self.limit, "timeout": self.timeout}
        loop: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if isinstance(policy, ConsumerPolicy):
            loop["streaming"] = not self.is_draining
        if self.concurrency is not None:
            loop["concurrency"] = ConcurrencyPolicy(value=self.concurrency)
        if self.batch is not None:
            loop["batch"] = BatchPolicy(size=self.batch, oldest_first_every=policy.loop.batch.oldest_first_every)
        return replace(policy, loop=replace(policy.loop, **loop))


class PipelineRunner:
    def __init__(self, pipeline: Pipeline, connector: PipelineConnector, options: Options, pools: Pools) -> None:
        self.pipeline, self._options = pipeline, options
        self.connector = connector
        self._sink = Connector()  # where a producer sends to
        # A consumer gets the one that it fetches from; a producer also the one that it sends to.
        given: dict[str, Connector] = {pipeline.connector: connector}
        if pipeline.direction != "inbound" and pipeline.connector != "database":
            self._sink = registered_connector(pipeline, options)
            given = {"database": connector, pipeline.connector: self._sink}
        self.task = build(pipeline, given, pools, options)
        self.task.abandoned_grace, self.task.cancel_grace = options.abandoned_grace, options.cancel_grace
        self.task.pipeline_name = pipeline.name
        self.error: BaseException | None = None
        self.has_reached_limit = False

    def run(self) -> None:
        """Until there is no more, the limit is reached, or somebody stops it; raises what ended it otherwise."""
        policy, _ = self.connector.policy_in_force()
        try:
            if self.pipeline.direction == "inbound":
                run = self.task.consume_transactions(policy)
            else:
                is_streaming = not self._options.is_draining
                run = self.task.produce_transactions(self.connector, policy, is_streaming=is_streaming)
            if inspect.iscoroutine(run):
                with closing(EventLoop()) as event_loop:
                    run = event_loop.run(run)
            self.has_reached_limit = run.stopped_by == Stop.LIMIT
        finally:
            self.connector.close()
            self._sink.close()

    def stop(self) -> None:
        self.connector.interrupt()
        self.task.end()

    def cut(self) -> None:
        self.task.cut()
        self.connector.give_up()
        self._sink.give_up()


def connectors_of(pipeline: Pipeline, heartbeat: Heartbeat, options: Options) -> Iterator[PipelineConnector]:
    """The sources of a pipeline: the database always, so that submitted transactions run as well."""
    if pipeline.connector == "database" or pipeline.direction != "inbound":
        yield DatabaseConnector(pipeline, heartbeat, options.applied_to)
        return
    inner, shared = registered_connector(pipeline, options), SharedLimit()
    if options.is_draining:
        inner.drain()
    yield DatabaseConnector(pipeline, heartbeat, options.applied_to, shared)
    yield ExternalConnector(pipeline, inner, heartbeat, options.applied_to, shared)


def registered_connector(pipeline: Pipeline, options: Options) -> Connector:
    """The connector that a pipeline names. Where it can, it waits for a server that is away until it is stopped.

    A drain is to end: it waits no longer than the connector itself would.
    """
    discovery.discover()
    is_async = bool(pipeline.task) and issubclass(registry.tasks.find(pipeline.task), ASYNC)
    made = registry.connectors.find(pipeline.connector)(pipeline.name)
    try:
        connector = require_connector(made, is_async=is_async)
    except ConnectorError as error:
        msg = f"the pipeline {pipeline.name!r} cannot use the connector {pipeline.connector!r}: {error}"
        raise UnrunnableError(msg) from error
    if not options.is_draining:
        connector.wait_out_outages()
    return connector


def missing_here(pipeline: Pipeline) -> str | None:
    """The thing that this process lacks to run a pipeline; None if it can run it."""
    discovery.discover()
    if pipeline.task and pipeline.task not in registry.tasks.names():
        return f"task {pipeline.task!r}"
    if not pipeline.task and pipeline.executor not in settings().executors:
        return f"executor {pipeline.executor!r}"
    if pipeline.connector == "broker" and settings().broker_url is None:
        return "address of a broker (CELERY_BROKER_URL)"
    if pipeline.connector not in ("database", *registry.connectors.names()):
        return f"connector {pipeline.connector!r}"
    return None


def build(pipeline: Pipeline, connectors: dict[str, Connector], pools: Pools, options: Options) -> Any:
    """The task of a pipeline, given its connectors and every service; or the one that runs its executor."""
    if pipeline.task:
        discovery.discover()
        cls = registry.tasks.find(pipeline.task)
        kind, mixins = NEEDED[pipeline.direction]
        if not issubclass(cls, mixins):
            msg = f"the pipeline {pipeline.name!r} is {pipeline.direction}, but its task {pipeline.task!r} is no {kind}"
            raise UnrunnableError(msg)
        return cls(connectors=connectors, services=discovery.services())
    if pipeline.executor not in pools:
        known = ", ".join(pools) or "none"
        msg = (
            f"the pipeline {pipeline.name!r} runs the executor {pipeline.executor!r}, "
            f"which ERGON_EXECUTORS does not name; it names: {known}"
        )
        raise UnrunnableError(msg)
    return RunInExecutor(
        pools,
        executor=pipeline.executor,
        pipeline=pipeline.name,
        worker_id=f"{socket.gethostname()}:{os.getpid()}",
        is_draining=options.is_draining,
        connectors=connectors,
    )

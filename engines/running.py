"""Runs pipelines in this process: builds each task with what it needs, and its engine until somebody stops it."""

import inspect
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, Self

from django.db import close_old_connections

from engines import discovery, registry, telemetry
from engines.conf import settings
from engines.connectors.allowance import Allowance, Sharing
from engines.connectors.database import ClaimedBatch, DatabaseConnector
from engines.connectors.foreign import ForeignConnector
from engines.connectors.station import Station
from engines.consumer import AsyncConsumerMixin, ConsumerMixin
from engines.core import failures
from engines.core.errors import AbandonedAttemptsError, LoopTimeout, ProducerLoopTimeout, UnrunnableError
from engines.core.policy import BatchPolicy, ConcurrencyPolicy, ConsumerPolicy, ProducerPolicy
from engines.core.steps import Stop
from engines.core.tally import Tally
from engines.drivers.eventloop import EventLoop
from engines.drivers.limits import CANCEL_GRACE
from engines.drivers.observed import labels_of, tell_of_the_queue
from engines.drivers.run import PATIENCE
from engines.executors.counting import counted
from engines.executors.pool import Pools
from engines.executors.task import RunInExecutor
from engines.models import Pipeline
from engines.producer import AsyncProducerMixin, ProducerMixin

HOOKS = (
    "process_transaction",
    "handle_transaction_success",
    "handle_transaction_exception",
    "produce_transaction",
    "handle_produce_success",
    "handle_produce_exception",
)


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
        loop: dict[str, Any] = {}
        if isinstance(policy, ConsumerPolicy):
            loop["streaming"] = not self.is_draining
        if self.limit is not None:
            loop["limit"] = self.limit
        if self.timeout is not None:
            loop["timeout"] = self.timeout
        if self.concurrency is not None:
            loop["concurrency"] = ConcurrencyPolicy(value=self.concurrency)
        if self.batch is not None:
            loop["batch"] = BatchPolicy(size=self.batch, oldest_first_every=policy.loop.batch.oldest_first_every)
        return replace(policy, loop=replace(policy.loop, **loop))


class PipelineRunner:
    """One pipeline of this process."""

    def __init__(self, pipeline: Pipeline, connector: Any, options: Options, pools: Pools) -> None:
        self.pipeline, self._options = pipeline, options
        self.connector = connector
        self._sink: Any = None  # where a producer sends to
        self.task = build(pipeline, self._given(), pools)
        if isinstance(self.task, RunInExecutor):
            self.task.is_draining = options.is_draining
        self.task.abandoned_grace, self.task.cancel_grace = options.abandoned_grace, options.cancel_grace
        self.task.pipeline_name = pipeline.name
        self._is_stopping = threading.Event()
        self._woken = threading.Event()
        self.task._is_over = self._is_stopping.is_set  # noqa: SLF001 (whoever runs a task may say so)
        self._abandoned = self.task._abandoned()  # noqa: SLF001 (looked after here between batches)
        self._event_loop: EventLoop | None = None
        self.error: BaseException | None = None
        self.has_reached_limit = False

    def _given(self) -> dict[str, Any]:
        """A consumer gets the one that it fetches from; a producer also the one that it sends to."""
        if self.pipeline.direction == "inbound" or self.pipeline.connector == "database":
            return {self.pipeline.connector: self.connector}
        self._sink = registered_connector(self.pipeline, self._options)
        return {"database": self.connector, self.pipeline.connector: self._sink}

    def run(self) -> None:
        """Until there is no more, the limit is reached, or somebody stops it; raises what ended it otherwise."""
        try:
            if self.pipeline.direction == "inbound":
                self._consume()
            else:
                self._produce()
        finally:
            if self._event_loop is not None:
                self._event_loop.close()
            self.connector.close()
            if hasattr(self._sink, "close"):
                self._sink.close()

    def stop(self) -> None:
        self._is_stopping.set()
        self._woken.set()
        self.connector.interrupt()
        self.task.stop()

    def cut(self) -> None:
        self.task.cut()
        for connector in (self.connector, self._sink):
            if "give_up" in getattr(connector, "ergon_offers", ()):
                connector.give_up()

    def _consume(self) -> None:
        policy, _ = self.connector.policy_in_force()
        if not self._is_stopping.is_set():
            report = self._complete(self.task.consume_transactions(policy))
            self.has_reached_limit = report.stopped_by == Stop.LIMIT

    def _complete(self, run: Any) -> Any:
        """An async task's loops share one event loop: what one of them leaves behind goes on, and is counted."""
        if not inspect.iscoroutine(run):
            return run
        self._event_loop = self._event_loop or EventLoop()
        return self._event_loop.run(run)

    def _produce(self) -> None:
        try:
            self._produce_batches()
        finally:
            self.connector.flush()

    def _produce_batches(self) -> None:
        """Batch by batch, each under the policy that is in force by then; the loop's time is that of the first."""
        self.connector.on_arrival(self._woken.set)
        timeout = self.connector.policy_in_force()[0].loop.timeout
        started, ends_at = 0, time.monotonic() + (timeout or math.inf)
        while not self._is_stopping.is_set():
            if time.monotonic() >= ends_at:
                msg = f"{type(self.task).__name__} ran for its {timeout:g} s; {started} transactions had started"
                raise ProducerLoopTimeout(msg, Tally().report(timeout, Stop.STOPPED))
            size = _left(self.connector.policy_in_force()[0], started)
            if size == 0:
                self.has_reached_limit = True
                return
            if self._is_crowded():
                self._is_stopping.wait(PATIENCE)
                continue
            self._woken.clear()
            batch = self._fetch(size)
            started += len(batch)
            if batch:
                self._produce_batch(batch, ends_at - time.monotonic())
            elif self._options.is_draining:
                return
            else:
                self._woken.wait(min(1.0, max(0.0, ends_at - time.monotonic())))

    def _fetch(self, size: int) -> list[Any]:
        """The next batch. Before it is empty, what asked for a later attempt is back in the queue."""
        batch: list[Any] = self.connector.fetch_transactions(size)
        if not batch and self._options.is_draining:
            self.connector.flush()
            batch = self.connector.fetch_transactions(size)
        if telemetry.is_metering():
            labels = labels_of(type(self.task).__name__, self.pipeline.name)
            tell_of_the_queue(labels, batch, self._depth())
        return batch

    def _depth(self) -> int | None:
        with suppress(Exception):  # a number for a chart is not worth a batch
            return int(self.connector.count())
        return None

    def _is_crowded(self) -> bool:
        """Whether as many abandoned attempts as slots still run; raises once that has lasted for the grace."""
        policy, _ = self.connector.policy_in_force()
        seconds, grace = self._abandoned.crowded_for(policy.loop.concurrency.value), self._options.abandoned_grace
        if seconds is not None and seconds >= grace:
            raise self._abandoned.complaint(grace)
        return seconds is not None

    def _produce_batch(self, batch: Sequence[Any], left: float) -> None:
        """The limits are of the whole run, not of each batch."""
        policy, _ = self.connector.policy_in_force()
        limits = {"limit": None, "timeout": max(left, 0.001) if math.isfinite(left) else None}
        bounded = replace(policy, loop=replace(policy.loop, **limits))
        self._complete(self.task.produce_transactions(ClaimedBatch(batch, self.connector), bounded))


def connectors_of(pipeline: Pipeline, station: Station, options: Options) -> Iterator[Any]:
    """Where a pipeline's transactions come from: the database always, so that what is submitted here runs as well."""
    own = DatabaseConnector(pipeline, station, options.applied_to)
    if pipeline.connector == "database" or pipeline.direction != "inbound":
        yield own
        return
    allowance, inner = Allowance(), registered_connector(pipeline, options)
    if options.is_draining and "drain" in getattr(inner, "ergon_offers", ()):
        inner.drain()
    yield Sharing(own, allowance)
    yield Sharing(ForeignConnector(pipeline, inner, station, options.applied_to), allowance)


def registered_connector(pipeline: Pipeline, options: Options) -> Any:
    """The connector that a pipeline names. Where it can, it waits for a server that is away until it is stopped.

    A drain is to end: it waits no longer than the connector itself would.
    """
    _find_everything()
    connector = registry.connectors.find(pipeline.connector)(pipeline.name)
    if not options.is_draining and "wait_out_outages" in getattr(connector, "ergon_offers", ()):
        connector.wait_out_outages()
    return connector


def missing(pipeline: Pipeline) -> str | None:
    """What this process lacks to run a pipeline; None if it can run it."""
    _find_everything()
    if pipeline.task and pipeline.task not in registry.tasks.names():
        return f"task {pipeline.task!r}"
    if not pipeline.task and pipeline.executor not in settings().executors:
        return f"executor {pipeline.executor!r}"
    if pipeline.connector == "broker" and settings().broker_url is None:
        return "address of a broker (CELERY_BROKER_URL)"
    if pipeline.connector not in ("database", *registry.connectors.names()):
        return f"connector {pipeline.connector!r}"
    return None


def _find_everything() -> None:
    discovery.discover()
    import_module("engines.connectors.builtin")


def build(pipeline: Pipeline, connectors: dict[str, Any], pools: Pools) -> Any:
    """The task of a pipeline, given its connectors and every service."""
    if not pipeline.task:
        return _executor_task(pipeline, connectors, pools)
    discovery.discover()
    cls = registry.tasks.find(pipeline.task)
    kind, mixins = NEEDED[pipeline.direction]
    if not issubclass(cls, mixins):
        msg = f"the pipeline {pipeline.name!r} is {pipeline.direction}, but its task {pipeline.task!r} is no {kind}"
        raise UnrunnableError(msg)
    task = cls(connectors=connectors, services=discovery.services())
    for name in HOOKS:
        hook = getattr(task, name, None)
        if hook is not None and not inspect.iscoroutinefunction(hook):
            setattr(task, name, _with_fresh_connections(hook))
    return task


def _executor_task(pipeline: Pipeline, connectors: dict[str, Any], pools: Pools) -> RunInExecutor:
    if pipeline.executor not in pools:
        known = ", ".join(pools) or "none"
        msg = (
            f"the pipeline {pipeline.name!r} runs the executor {pipeline.executor!r}, "
            f"which ERGON_EXECUTORS does not name; it names: {known}"
        )
        raise UnrunnableError(msg)
    worker = f"{socket.gethostname()}:{os.getpid()}"
    task = RunInExecutor(
        pools, executor=pipeline.executor, pipeline=pipeline.name, worker_id=worker, connectors=connectors
    )
    for name in ("process_transaction", "produce_transaction"):
        setattr(task, name, counted(getattr(task, name), executor=pipeline.executor, known=pools))
    return task


def _with_fresh_connections(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A handler's own database connections do not outlive their usefulness, in whatever thread it runs."""

    @wraps(hook)
    def handle(*args: Any) -> Any:
        try:
            value = hook(*args)
        except BaseException:
            close_old_connections()
            raise
        now = time.monotonic()
        if now - getattr(_looked, "at", 0.0) > LOOK_EVERY:
            _looked.at = now
            close_old_connections()
        return value

    return handle


LOOK_EVERY = 1.0
_looked = threading.local()


def _left(policy: ProducerPolicy, started: int) -> int:
    size = policy.loop.batch.size
    return size if policy.loop.limit is None else max(0, min(size, policy.loop.limit - started))


class WorkerProcess:
    """All pipelines of this process, each in a thread of its own, and the station that they share."""

    def __init__(
        self, pipelines: Sequence[Pipeline], options: Options, is_wanted: Callable[[], bool] = lambda: True
    ) -> None:
        self.pipelines, self._options, self._is_wanted = pipelines, options, is_wanted
        self._stack = ExitStack()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []
        self._ended: SimpleQueue[PipelineRunner] = SimpleQueue()
        self.is_cut = False
        self.changed = threading.Event()

    def __enter__(self) -> Self:
        names = [pipeline.name for pipeline in self.pipelines]
        self.runners: list[PipelineRunner] = []
        self.pools = Pools(settings().executors, settings().executor_environment)
        self._stack.callback(self.pools.close)
        self._stack.enter_context(telemetry.watching_executors(self.pools.snapshot))
        self.station = self._stack.enter_context(Station(names, self._abandoned, self._executors, self._is_wanted))
        if not self._is_wanted():
            return self
        try:
            with self.station.connections.borrow():
                self.runners += [
                    PipelineRunner(pipeline, connector, self._options, self.pools)
                    for pipeline in self.pipelines
                    for connector in connectors_of(pipeline, self.station, self._options)
                ]
        except BaseException:
            self._stack.close()
            raise
        for runner in self.runners:
            thread = threading.Thread(
                target=self._run, args=[runner], name=f"ergon-{runner.pipeline.name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def is_abandoned(self) -> bool:
        """Whether a pipeline is full of attempts that do not end: only another process helps."""
        return any(isinstance(error, AbandonedAttemptsError) for error in self.errors)

    @property
    def given_back(self) -> int:
        return sum(self.given_back_of(pipeline) for pipeline in self.pipelines)

    def given_back_of(self, pipeline: Pipeline) -> int:
        return sum(runner.connector.given_back for runner in self.runners if runner.pipeline is pipeline)

    def stop(self) -> None:
        """Claim no more; let what runs end."""
        self.station.is_stopping = True
        for runner in self.runners:
            runner.stop()

    def cut(self) -> None:
        """Give back what still runs."""
        self.is_cut = True
        for runner in self.runners:
            runner.cut()

    def _run(self, runner: PipelineRunner) -> None:
        try:
            runner.run()
        except BaseException as error:  # noqa: BLE001 (told by whoever started the crew)
            runner.error = error
            self.errors.append(error)
            if not isinstance(error, LoopTimeout):
                self._stop_pipeline(runner.pipeline)
        finally:
            self._ended.put(runner)
            self.changed.set()

    def _stop_pipeline(self, pipeline: Pipeline) -> None:
        """What is submitted to a pipeline does not run on alone where its broker refuses us."""
        for runner in self.runners:
            if runner.pipeline is pipeline:
                runner.stop()

    def newly_ended(self) -> Iterator[PipelineRunner]:
        """Those that have ended since somebody asked; the others go on."""
        with suppress(Empty):
            while True:
                yield self._ended.get_nowait()

    def _abandoned(self) -> int:
        return sum(runner.task.abandoned_attempts for runner in self.runners)

    def _executors(self) -> list[dict[str, Any]]:
        """What its row tells of them; a text that no column takes must not keep the heart from beating."""
        return [{**one, "last_fault": failures.without_secrets(one["last_fault"])} for one in self.pools.snapshot()]

"""The worker process: its pipelines, each in a thread of its own, and the heartbeat that they share."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Self

from engines import telemetry
from engines.conf import settings
from engines.core.errors import AbandonedAttemptsError, LoopTimeout
from engines.executors.pool import Pools
from engines.models import Pipeline
from engines.worker.heartbeat import Heartbeat
from engines.worker.pipeline import Options, PipelineRunner, connectors_of


class WorkerProcess:
    """All pipelines of this process, each in a thread of its own, and the heartbeat that they share."""

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
        heartbeat = Heartbeat(
            names,
            lambda: sum(runner.task.abandoned_attempts for runner in self.runners),
            self.pools.snapshot,
            self._is_wanted,
        )
        self.heartbeat = self._stack.enter_context(heartbeat)
        if not self._is_wanted():
            return self
        try:
            with self.heartbeat.connections.borrow():
                self.runners += [
                    PipelineRunner(pipeline, connector, self._options, self.pools)
                    for pipeline in self.pipelines
                    for connector in connectors_of(pipeline, self.heartbeat, self._options)
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
        self.heartbeat.is_stopping = True
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
        except BaseException as error:  # noqa: BLE001 (told by whoever started the worker)
            runner.error = error
            self.errors.append(error)
            if not isinstance(error, LoopTimeout):
                # All loops of the pipeline: its submitted transactions do not run on alone without its broker.
                for one in self.runners:
                    if one.pipeline is runner.pipeline:
                        one.stop()
        finally:
            self._ended.put(runner)
            self.changed.set()

    def newly_ended(self) -> Iterator[PipelineRunner]:
        """The pipelines that have ended since the last call."""
        while not self._ended.empty():
            yield self._ended.get()

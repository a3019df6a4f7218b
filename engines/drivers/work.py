"""The input of a driver: a task, its connector and its policy."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from engines.connectors.base import Connector
from engines.core.errors import LoopTimeout
from engines.core.lifecycle import Plan, plan_of
from engines.core.outcome import Failure, Outcome, Success
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.core.steps import Stage, Steps, Stop
from engines.drivers.timeouts import Abandoned
from engines.tasks.transaction import Transaction


class DrivenTask(Protocol):
    """The parts of a task that drivers use besides its handlers."""

    pipeline_name: str | None
    abandoned_grace: float
    cancel_grace: float

    def abandoned_counter(self) -> Abandoned: ...


class Waiting(NamedTuple):
    """A transaction that waits for a place in an executor, as the driver sees it."""

    is_wanted: Callable[[], bool]
    aside: Callable[[], AbstractContextManager[bool]]  # its slot is another's meanwhile; False if too many wait so
    may_postpone: bool  # it can be put back until a later time


class Postponed(NamedTuple):
    """No executor has a place: the transaction is to come back after so many seconds; `error` says why."""

    seconds: float
    error: Exception


class RunsElsewhere:
    """The base of tasks whose work runs in other processes. Drivers know them by this class."""

    def hold(self, transaction: Transaction, waiting: Waiting) -> AbstractContextManager[bool | Postponed]:
        """A place there for one attempt; False if it is no longer wanted, or how long to stay away."""
        raise NotImplementedError

    def halt(self) -> None:
        """End all that runs there."""
        raise NotImplementedError

    def halt_one(self, transaction: Transaction) -> None:
        """End what runs there for one transaction."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A loop, ready to run."""

    task: DrivenTask
    connector: Connector
    policy: ConsumerPolicy | ProducerPolicy
    loop: Callable[[Callable[[], Any]], Steps[Stop | Failure]]
    handlers: Mapping[Stage, Callable[..., Any]]
    timeout_error: type[LoopTimeout]
    silent: frozenset[Stage] = frozenset()  # stages whose handler the author left as it is
    policy_version: str | None = None

    @property
    def name(self) -> str:
        return type(self.task).__name__

    @property
    def pipeline(self) -> str | None:
        return self.task.pipeline_name

    @property
    def elsewhere(self) -> RunsElsewhere | None:
        """The task, if its work runs in other processes."""
        return self.task if isinstance(self.task, RunsElsewhere) else None

    @property
    def plan(self) -> Plan:
        return plan_of(self.policy, is_postponing=self.connector.is_postponing)

    def renewed(self) -> "Work":
        """The same work under the policy that is in force by now."""
        in_force = self.connector.policy_in_force()
        if in_force is None or in_force[1] == self.policy_version:
            return self
        policy, version = in_force
        return replace(self, policy=policy, policy_version=version)

    def is_noted(self, stage: Stage, outcome: Outcome) -> bool:
        """Whether an attempt is recorded: not the success of a handler that the author left as it is."""
        return stage not in self.silent or not isinstance(outcome, Success)

    @property
    def concurrency(self) -> int:
        return self.policy.loop.concurrency.value

    @property
    def is_consumer(self) -> bool:
        return isinstance(self.policy, ConsumerPolicy)

    @property
    def is_streaming(self) -> bool:
        return isinstance(self.policy, ConsumerPolicy) and self.policy.loop.streaming

    @property
    def is_worker(self) -> bool:
        """Whether it runs for ever, or for a pipeline: then another process can take its place."""
        return self.is_streaming or self.pipeline is not None

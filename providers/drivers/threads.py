"""Performs an execution in the thread of its caller.

A thread cannot be killed: an implementation keeps to `context.timeout` itself, as `HttpProvider` does.
"""

import time
from typing import Any

from providers.core.exchange import ProviderExecutionResult
from providers.core.steps import Call, Sleep, Steps
from providers.drivers.store import Store
from providers.drivers.work import Work


def drive(steps: Steps[ProviderExecutionResult], work: Work, store: Store) -> ProviderExecutionResult:
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            result: ProviderExecutionResult = end.value
            return result
        match step:
            case Call():
                reply = work.call(step)
            case Sleep(seconds):
                time.sleep(seconds)
                reply = None
            case _:
                reply = store.perform(step)

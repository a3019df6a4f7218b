"""Performs an execution on the event loop. The database is asked in a thread, as Django wants it."""

import asyncio
from typing import Any

from asgiref.sync import sync_to_async

from providers.core.exchange import ProviderExecutionResult
from providers.core.steps import Call, Sleep, Steps
from providers.drivers.store import Store
from providers.drivers.work import Work


async def drive(steps: Steps[ProviderExecutionResult], work: Work, store: Store) -> ProviderExecutionResult:
    perform = sync_to_async(store.perform)
    reply: Any = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            result: ProviderExecutionResult = end.value
            return result
        match step:
            case Call():
                reply = await work.acall(step)
            case Sleep(seconds):
                await asyncio.sleep(seconds)
                reply = None
            case _:
                reply = await perform(step)

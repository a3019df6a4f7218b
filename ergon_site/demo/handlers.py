"""Handlers of the demo's executor, which run in a process of their own."""

import time
from typing import Any

from engines.executors import HandlerRegistry

registry = HandlerRegistry()


@registry.handler("sales")
def sales(week: str) -> dict[str, Any]:
    print(f"adding up {week}")  # noqa: T201 (the console shows what handlers say)
    time.sleep(0.2)
    return {"week": week, "total": 1200 + 7 * len(week)}


@registry.handler("forecast")
def forecast(week: str) -> dict[str, Any]:
    msg = f"there are no figures for {week} yet"
    raise LookupError(msg)

import os
from functools import cache
from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks.queue.jobs import enter

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCHMARK_DATABASE"]))


@app.task(name="noop")
async def noop(carried: dict[str, Any]) -> None:
    enter(carried["number"])


@cache
def opened() -> App:
    """The application with a connection for calls from outside an event loop."""
    app.open()
    return app

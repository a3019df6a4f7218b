"""The settings of the engines, read once into one frozen value."""

import os
from collections import ChainMap
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from engines.executors.settings import ExecutorSettings, executors_in, inherited
from ergon_site.access import conf

DEFAULTS: dict[str, Any] = {
    "CELERY_BROKER_URL": None,
    "ERGON_ABANDONED_GRACE": 30.0,
    "ERGON_BATCH": None,
    "ERGON_CANCEL_GRACE": 1.0,
    "ERGON_CONCURRENCY": None,
    "ERGON_DRAIN": False,
    "ERGON_EXECUTORS": {},
    "ERGON_EXECUTOR_VARIABLES": (),
    "ERGON_GRACE": 25.0,
    "ERGON_JSON": False,
    "ERGON_LEASE_SECONDS": 30.0,
    "ERGON_LIMIT": None,
    "ERGON_METRICS_PORT": None,
    "ERGON_PAYLOAD_LIMIT": 1024 * 1024,
    "ERGON_PROCESSES": 1,
    "ERGON_RELEASE": "",
    "ERGON_RESULT_LIMIT": 1024 * 1024,
    "ERGON_SERVICES": {},
    "ERGON_START_TIMEOUT": 60.0,
    "ERGON_TASKS": (),
    "ERGON_TIMEOUT": None,
    "ERGON_TRACE_URL": "",
}

# The types of those that are not set by default.
OPTIONAL = {
    "ERGON_BATCH": int,
    "ERGON_CONCURRENCY": int,
    "ERGON_LIMIT": int,
    "ERGON_METRICS_PORT": int,
    "ERGON_TIMEOUT": float,
}

setting = partial(conf.setting, defaults=DEFAULTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    lease: float
    database_timeout: float
    start_timeout: float
    payload_limit: int
    result_limit: int
    tasks: tuple[str, ...]
    services: dict[str, str]
    executors: dict[str, ExecutorSettings]
    executor_environment: dict[str, str]
    broker_url: str | None
    data_folder: Path
    trace_url: str
    release: str
    chores: dict[str, tuple[float, str]]
    # Of the installed apps: functions and modules by their names, loaded by whoever calls them.
    findings: tuple[str, ...]
    blockers: tuple[str, ...]
    replayers: tuple[str, ...]

    @property
    def heartbeat(self) -> float:
        """Three chances to renew a lease before it lapses."""
        return self.lease / 3

    @property
    def time_to_renew(self) -> float:
        """For so long after an outage nobody is rescued: every worker first has the time to renew its own leases."""
        return self.lease / 2

    @property
    def heartbeat_limit(self) -> float:
        """A database that leaves a heartbeat without an answer for so long counts as away."""
        return max(1.0, self.lease / 3)


@cache
def settings() -> EngineSettings:
    return EngineSettings(
        lease=setting("ERGON_LEASE_SECONDS"),
        database_timeout=conf.setting("ERGON_DATABASE_TIMEOUT"),
        start_timeout=setting("ERGON_START_TIMEOUT"),
        payload_limit=setting("ERGON_PAYLOAD_LIMIT"),
        result_limit=setting("ERGON_RESULT_LIMIT"),
        tasks=tuple(setting("ERGON_TASKS")),
        services=setting("ERGON_SERVICES"),
        executors=executors_in(setting("ERGON_EXECUTORS")),
        # Given on to executors, not read.
        executor_environment=inherited(os.environ, tuple(setting("ERGON_EXECUTOR_VARIABLES"))),  # noqa: TID251
        broker_url=setting("CELERY_BROKER_URL"),
        data_folder=conf.data_folder(),
        trace_url=setting("ERGON_TRACE_URL"),
        release=setting("ERGON_RELEASE"),
        chores=dict(ChainMap(*conf.declared_by_apps("ergon_chores"))),
        findings=tuple(chain(*conf.declared_by_apps("ergon_findings"))),
        blockers=tuple(chain(*conf.declared_by_apps("ergon_blockers"))),
        replayers=tuple(chain(*conf.declared_by_apps("ergon_replayers"))),
    )

"""The settings of the engines, read once into one frozen value."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings as django_settings

from engines.executors.settings import ExecutorSettings, executors_in


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
    chores: dict[str, tuple[float, str]]
    # Functions and modules by their names, loaded by whoever calls them: commands start sooner without.
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
        lease=django_settings.ERGON_LEASE_SECONDS,
        database_timeout=django_settings.ERGON_DATABASE_TIMEOUT,
        start_timeout=django_settings.ERGON_START_TIMEOUT,
        payload_limit=django_settings.ERGON_PAYLOAD_LIMIT,
        result_limit=django_settings.ERGON_RESULT_LIMIT,
        tasks=django_settings.ERGON_TASKS,
        services=django_settings.ERGON_SERVICES,
        executors=executors_in(django_settings.ERGON_EXECUTORS),
        executor_environment=django_settings.ERGON_EXECUTOR_ENVIRONMENT,
        broker_url=django_settings.CELERY_BROKER_URL,
        data_folder=django_settings.DATA_DIR,
        trace_url=django_settings.ERGON_TRACE_URL,
        chores=django_settings.ERGON_CHORES,
        findings=django_settings.ERGON_FINDINGS,
        blockers=django_settings.ERGON_BLOCKERS,
        replayers=django_settings.ERGON_REPLAYERS,
    )

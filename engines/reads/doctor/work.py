"""Checks of tasks, pipelines and policies: whether this host can run them."""

from collections.abc import Iterator

from engines.conf import settings
from engines.core.errors import PolicyError
from engines.models import Pipeline, Policy
from engines.reads.doctor.finding import Finding, ok, problem, warning
from engines.tasks import registry
from engines.tasks.discovery import DiscoveryError, discover
from ergon_site.access.cli.program import typed

CONNECTORS = ("broker", "database")


def tasks() -> Iterator[Finding]:
    try:
        discover()
    except DiscoveryError as error:
        yield problem("tasks", str(error), "correct the module, or ERGON_TASKS, which names it")
        return
    names = registry.tasks.names()
    yield ok("tasks", f"{len(names)} found{': ' if names else ''}{', '.join(names)}")


def pipelines() -> Iterator[Finding]:
    faults = []
    connectors = sorted({*CONNECTORS, *registry.connectors.names()})
    for pipeline in Pipeline.objects.all():
        if pipeline.task and pipeline.task not in registry.tasks.names():
            hint = "install its app here, name its module in ERGON_TASKS, or run doctor on the host that consumes"
            faults.append(problem("pipelines", f"{pipeline.name}: no task is named {pipeline.task!r}", hint))
        if pipeline.executor and pipeline.executor not in settings().executors:
            text = f"{pipeline.name}: no executor is named {pipeline.executor!r}"
            faults.append(problem("pipelines", text, "add it to ERGON_EXECUTORS"))
        if pipeline.connector not in connectors:
            hint = f"there are: {', '.join(connectors)}; see {typed('pipeline amend')}"
            faults.append(problem("pipelines", f"{pipeline.name}: no connector is named {pipeline.connector!r}", hint))
    yield from faults or [ok("pipelines", f"{Pipeline.objects.count():,}, all can run on this host")]


def _fault_of(policy: Policy, error: str) -> Finding:
    try:
        policy.value_class.from_stored(policy.active.body if policy.active else None)
    except PolicyError:
        hint = f"activate another version: {typed(f'policy versions {policy.name}')}"
        return problem("policies", f"{policy.name}: {error}", hint)
    hint = "a newer release has written it; upgrade the processes on this host, which ignore the option"
    return warning("policies", f"{policy.name}: {error}", hint)


def policies() -> Iterator[Finding]:
    faults = []
    for policy in Policy.objects.select_related("active"):
        try:
            policy.read(policy.active.body if policy.active else None)
        except PolicyError as error:
            faults.append(_fault_of(policy, str(error)))
    yield from faults or [ok("policies", f"{Policy.objects.count():,}, all valid")]

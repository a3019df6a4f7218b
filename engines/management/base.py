"""Shared by the commands of the engines: errors, and files with JSON."""

from argparse import ArgumentTypeError
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from engines.conf import settings
from engines.core import naming
from engines.core.errors import EngineError
from engines.models import Pipeline
from engines.task_backend import RUNNER
from engines.tasks import discovery, registry
from engines.tasks.discovery import DiscoveryError
from engines.transactions import PipelineUnknownError, payloads
from engines.worker.pipeline import missing_here
from ergon_site.access.cli import commands
from ergon_site.access.cli.commands import content_of, one_line
from ergon_site.access.cli.program import typed
from ergon_site.access.cli.tables import printable


def hint_for(error: Exception) -> str:
    """The command that makes what is missing, for people at a shell; API clients have none."""
    if not isinstance(error, PipelineUnknownError) or naming.refusal("pipeline", error.name):
        return ""
    with suppress(DiscoveryError):
        discovery.discover()
    tasks = [name for name in registry.tasks.names() if name != RUNNER]
    creating = typed(f"pipeline create {error.name} --task {tasks[0] if len(tasks) == 1 else 'TASK'}")
    command = f"create it with {creating}"
    return f"{command}, where TASK is one of {', '.join(tasks)}" if len(tasks) > 1 else command


class EngineCommand(commands.VerbCommand):
    refusals = (EngineError,)
    hint_for = staticmethod(hint_for)


class VerbsCommand(EngineCommand, commands.VerbsCommand):
    """A command with several verbs of the engines."""


def warn_if_unrunnable(command: BaseCommand, pipeline: Pipeline) -> None:
    """Warn on standard error if a pipeline names something unknown here, such as a mistyped task."""
    try:
        what = missing_here(pipeline)
    except DiscoveryError as error:
        command.stderr.write(f"warning: {one_line(error)}", command.style.WARNING)
        return
    if what is None:
        return
    there = f"; the tasks here are {', '.join(registry.tasks.names())}" if what.startswith("task ") else ""
    text = f"warning: there is no {what} here: only a worker that has it can run the pipeline {pipeline.name!r}{there}"
    command.stderr.write(printable(text), command.style.WARNING)


def json_file(path: str) -> Any:
    """The value that a file holds, or standard input where the file is called '-'."""
    # A value over its limit is refused by the verb; here it only matters that a wrong file ends somewhere.
    content = content_of(path, most=2 * settings().payload_limit)
    try:
        return payloads.decode(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not JSON: {error}"
        raise CommandError(msg) from None


def json_value(value: str) -> Any:
    try:
        return payloads.decode(value)
    except (ValueError, RecursionError) as error:
        msg = f"is not JSON: {error}"
        raise ArgumentTypeError(msg) from None

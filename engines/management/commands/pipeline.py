"""`manage.py pipeline create|amend|list`."""

from argparse import ArgumentParser
from dataclasses import fields
from typing import Any

from engines import pipelines
from engines.core.summary import FIELDS
from engines.management.base import VerbsCommand, warn_if_unrunnable
from engines.models import Pipeline
from engines.pipelines import Plan
from engines.tasks import discovery, registry
from ergon_site.access.cli.commands import actor, moment, one_line
from ergon_site.access.cli.options import MOST_DAYS, add_reason, text, whole

PLANNED = tuple(field.name for field in fields(Plan))
KEPT = ("paused_by", "paused_at", "pause_reason", "keep_succeeded_days", "keep_failed_days", "redacted", "summary")
LONGEST_PATH = 200


class Command(VerbsCommand):
    help = "Create, change and list pipelines: a task or an executor, with a connector and a policy, under a name."

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="create a pipeline")
        _add_plan(create, is_new=True)
        amend = self.add_verb("amend", help="change a pipeline; options that are not given stay as they are")
        _add_plan(amend, is_new=False)
        self.add_verb("list", help="list pipelines, and whether this host has their tasks")

    def create(self, *, name: str, reason: str, **options: Any) -> None:
        plan = Plan(**{field: options[field] for field in PLANNED})
        made = pipelines.create(name, plan, by=actor(), reason=reason)
        self.tell(_as_json(made), f"created the {made.direction} pipeline {made} with the policy {made.policy}")
        warn_if_unrunnable(self, made)

    def amend(self, *, name: str, reason: str, **options: Any) -> None:
        plan = pipelines.amendment(**{field: options[field] for field in PLANNED})
        changed = pipelines.amend(name, plan, by=actor(), reason=reason)
        self.tell(_as_json(changed), f"changed the pipeline {changed}")
        warn_if_unrunnable(self, changed)

    def list(self, **_: Any) -> None:
        try:
            discovery.discover()
        except discovery.DiscoveryError as error:
            self.stderr.write(one_line(error))
        rows = [_as_json(pipeline) for pipeline in Pipeline.objects.select_related("policy__active")]
        headings = ["name", "direction", "runs", "known here", "connector", "policy", "priority", "state"]
        self.tell(rows, self.table(headings, map(_row, rows)))


def _add_plan(parser: ArgumentParser, *, is_new: bool) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="the pipeline's name: letters, digits, '.', '_' and '-', at most 100")
    runs = parser.add_mutually_exclusive_group(required=is_new)
    runs.add_argument("--task", type=text(200), metavar="NAME", help="the task that runs its transactions")
    runs.add_argument(
        "--executor", type=text(100), metavar="NAME", help="the executor that runs its handlers, instead of a task"
    )
    add(
        "--direction",
        choices=["inbound", "outbound"],
        help=f"consume (inbound) or produce (outbound){_default('inbound', is_new)}",
    )
    add(
        "--connector",
        type=text(100),
        metavar="NAME",
        help=f"where transactions come from{_default('database', is_new)}",
    )
    add("--policy", metavar="NAME", help=f"the policy to run with{_default('the shipped one', is_new)}")
    add(
        "--priority",
        type=whole(-(2**31), 2**31 - 1),
        metavar="N",
        help="priority of transactions that are submitted without one",
    )
    _add_keeping(parser)
    add_reason(parser, required=False)


def _add_keeping(parser: ArgumentParser) -> None:
    add, served = parser.add_argument, parser.add_mutually_exclusive_group()
    what = "run by a consumer that names no pipelines"
    served.add_argument("--enable", dest="is_enabled", action="store_true", default=None, help=what)
    served.add_argument("--disable", dest="is_enabled", action="store_false", default=None, help=f"not {what}")
    for state in ("succeeded", "failed"):
        option, field = f"--keep-{state}", f"keep_{state}_days"
        add(option, dest=field, type=whole(0, MOST_DAYS), metavar="DAYS", help=f"prune {state} transactions after DAYS")
    add(
        "--redacted",
        type=text(LONGEST_PATH),
        nargs="*",
        metavar="PATH",
        help="all payload fields to hide, such as customer.email or items[].price; without a PATH no field is hidden",
    )
    add(
        "--summary",
        type=text(LONGEST_PATH),
        nargs="*",
        metavar="PATH",
        help=f"the payload fields that lists show, at most {FIELDS}; without a PATH the first ones",
    )


def _default(value: str, is_new: bool) -> str:  # noqa: FBT001 (a flag of the caller, handed on)
    return f"; {value} if not given" if is_new else ""


def _as_json(pipeline: Pipeline) -> dict[str, Any]:
    active = pipeline.policy.active
    return {
        "name": pipeline.name,
        "direction": pipeline.direction,
        "task": pipeline.task or None,
        "executor": pipeline.executor or None,
        "task_known": pipeline.task in registry.tasks.names() if pipeline.task else None,
        "connector": pipeline.connector,
        "policy": pipeline.policy.name,
        "policy_version": active.number if active else None,
        "priority": pipeline.priority,
        "enabled": pipeline.is_enabled,
        "paused": pipeline.is_paused,
        **{name: getattr(pipeline, name) for name in KEPT},
    }


def _row(told: dict[str, Any]) -> list[Any]:
    runs, policy = told["task"] or f"executor {told['executor']}", f"{told['policy']} v{told['policy_version']}"
    state = "enabled" if told["enabled"] else "disabled"
    if told["paused"]:
        state = f"paused by {told['paused_by']} at {moment(told['paused_at'])}: {told['pause_reason']}"
    names = [told["name"], told["direction"], runs, told["task_known"], told["connector"]]
    return [*names, policy, told["priority"], state]

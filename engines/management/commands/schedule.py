"""`manage.py schedule create|list|pause|resume`."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from engines import schedules
from engines.management.base import VerbsCommand, json_file, json_value
from engines.models import Schedule
from engines.schedules import Plan
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason


class Command(VerbsCommand):
    help = "Create and list schedules, which submit transactions by a cron expression. The command maintain runs them."

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="submit a payload to a pipeline at the times of a cron expression")
        add = create.add_argument
        add("name", metavar="NAME", help="the schedule's name: letters, digits, '.', '_' and '-', at most 100")
        add("pipeline", metavar="PIPELINE", help="the pipeline that the transactions are submitted to")
        add("cron", metavar="CRON", help="minute, hour, day of month, month, day of week: '0 7 * * 1-5'")
        add(
            "--time-zone",
            default="UTC",
            metavar="Z",
            help="the time zone of CRON, such as Europe/Berlin; UTC if not given",
        )
        payload = create.add_mutually_exclusive_group()
        payload.add_argument(
            "--payload", type=json_value, metavar="JSON", help="the payload to submit; null if not given"
        )
        payload.add_argument("--file", metavar="F", help="a file with the payload; '-' is standard input")
        add(
            "--catch-up",
            choices=["one", "all", "none"],
            default="one",
            help="missed runs: submit one for all of them (the default), all of them, or none",
        )
        add_reason(create, required=False)
        self.add_verb("list", help="list schedules with their next runs")
        for verb, what in {
            "pause": "stop a schedule",
            "resume": "start a schedule again from now on; missed runs are left out",
        }.items():
            switch = self.add_verb(verb, help=what)
            switch.add_argument("name", metavar="NAME", help="the schedule's name")
            add_reason(switch)

    def create(self, *, name: str, reason: str, **options: Any) -> None:
        payload = json_file(options["file"]) if options["file"] else options["payload"]
        given = {field: options[field] for field in ("pipeline", "cron", "time_zone", "catch_up")}
        made = schedules.create(name, Plan(payload=payload, **given), by=actor(), reason=reason)
        self.tell(_as_json(made), f"the schedule {made} runs next at {_local(made, made.next_run_at)}")

    def list(self, **_: Any) -> None:
        headings = ["name", "pipeline", "cron", "next run", "last run", "catch-up", "state"]
        told, rows = [], []
        for one in Schedule.objects.select_related("pipeline"):
            paused = f"paused by {one.paused_by}: {one.pause_reason}" if one.paused_at else "on"
            times = [_local(one, time) for time in (one.next_run_at, one.last_run_at)]
            told.append(_as_json(one))
            rows.append([one.name, one.pipeline.name, one.cron, *times, one.catch_up, paused])
        self.tell(told, self.table(headings, rows))

    def pause(self, *, name: str, reason: str, **_: Any) -> None:
        paused = schedules.pause(name, by=actor(), reason=reason)
        self.tell(_as_json(paused), f"paused the schedule {paused}")

    def resume(self, *, name: str, reason: str, **_: Any) -> None:
        resumed = schedules.resume(name, by=actor(), reason=reason)
        self.tell(_as_json(resumed), f"the schedule {resumed} runs next at {_local(resumed, resumed.next_run_at)}")


def _as_json(schedule: Schedule) -> dict[str, Any]:
    names = ("cron", "time_zone", "catch_up", "next_run_at", "last_run_at", "paused_at", "paused_by", "pause_reason")
    kept = {name: getattr(schedule, name) for name in names}
    return {"name": schedule.name, "pipeline": schedule.pipeline.name, **kept}


def _local(schedule: Schedule, time: datetime | None) -> str:
    """A time by the clock that the schedule goes by."""
    return f"{time.astimezone(ZoneInfo(schedule.time_zone)):%Y-%m-%d %H:%M} {schedule.time_zone}" if time else ""

"""Policies and schedules from a shell; what schedules do when runs were missed or cannot be submitted."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from engines import policies, schedules
from engines.models import Schedule, TransactionRecord
from engines.schedules import ScheduleError
from ergon_site.access.models import AuditEntry
from tests.commands import ask, run
from tests.factories import make_pipeline

# The verbs behind them are tested on both databases; what they print is the same on either.
pytestmark = [pytest.mark.django_db, pytest.mark.once]


def test_what_is_shown_can_be_changed_and_set_again(tmp_path: Path) -> None:
    policy = json.loads(run("policy", "show", "default"))
    assert policy == ask("policy", "show", "default")
    assert policy["loop"]["concurrency"]["value"] == 8
    policy["loop"]["concurrency"]["value"] = 16
    (tmp_path / "policy.json").write_text(json.dumps(policy))
    told = run("policy", "set", "default", "--file", str(tmp_path / "policy.json"), "--reason", "a busy week")
    assert told == "default v2 is active\n  loop.concurrency.value: 8 → 16\n"
    assert policies.find("default").active.reason == "a busy week"  # type: ignore[union-attr]


def test_a_version_is_put_back_in_force(tmp_path: Path) -> None:
    (tmp_path / "policy.json").write_text("{}")
    call_command("policy", "set", "default", "--file", str(tmp_path / "policy.json"), "--reason", "simple")
    back = ask("policy", "activate", "default", "1", "--reason", "too simple")
    assert back["number"] == 1
    assert {"path": "loop.concurrency.value", "before": 1, "after": 8} in back["changes"]
    versions = ask("policy", "versions", "default")
    assert [(version["number"], version["active"]) for version in versions] == [(2, False), (1, True)]
    assert "Shipped with Ergon" in run("policy", "versions", "default")


def test_a_new_policy_needs_a_kind_and_valid_fields(tmp_path: Path) -> None:
    body = tmp_path / "policy.json"
    body.write_text('{"loop": {"limit": 5}}')
    arguments = ["policy", "set", "mine", "--file", str(body), "--reason", "mine"]
    with pytest.raises(
        CommandError, match="no policy named 'mine': to make it, add --kind consumer or --kind producer"
    ):
        call_command(*arguments)
    assert ask(*arguments, "--kind", "producer")["kind"] == "producer"
    body.write_text('{"loop": {"limit": 0}}')
    with pytest.raises(CommandError, match=r"ProducerPolicy\.loop\.limit must be a whole number of at least 1"):
        call_command(*arguments)
    make_pipeline("mail", direction="outbound", policy="mine")
    listed = {row["name"]: row for row in ask("policy", "list")}
    assert (listed["mine"]["version"], listed["mine"]["pipelines"]) == (1, 1)
    assert "default-producer" in run("policy", "list")


def test_a_schedule_is_made_listed_paused_and_resumed() -> None:
    make_pipeline()
    made = ask(
        *("schedule", "create", "nightly", "orders", "30 2 * * *", "--time-zone", "Europe/Berlin"),
        *("--payload", '{"full": true}', "--catch-up", "none"),
    )
    assert (made["pipeline"], made["cron"], made["catch_up"]) == ("orders", "30 2 * * *", "none")
    assert Schedule.objects.get().payload == {"full": True}
    assert "02:30 Europe/Berlin" in run("schedule", "list")
    assert ask("schedule", "pause", "nightly", "--reason", "holidays")["pause_reason"] == "holidays"
    assert "holidays" in run("schedule", "list")
    assert "runs next at" in run("schedule", "resume", "nightly", "--reason", "back")
    assert ask("schedule", "list")[0]["paused_at"] is None
    actions = AuditEntry.objects.filter(target="schedule nightly").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["schedule.create", "schedule.pause", "schedule.resume"]


def test_a_schedules_payload_may_stand_in_a_file(tmp_path: Path) -> None:
    make_pipeline()
    (tmp_path / "payload.json").write_text("[1, 2]")
    call_command("schedule", "create", "s", "orders", "* * * * *", "--file", str(tmp_path / "payload.json"))
    assert Schedule.objects.get().payload == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["s", "nothing", "* * * * *"], "no pipeline named 'nothing'"),
        (["s", "orders", "tomorrow"], "'tomorrow' is not a cron expression"),
        (["s", "orders", "0 " * 51], "at most 100 characters"),
        (["s", "orders", "* * * * *", "--time-zone", "Mars/Olympus"], "no time zone named 'Mars/Olympus'"),
        (["s", "orders", "* * * * *", "--catch-up", "some"], "invalid choice: 'some'"),
        (["s", "orders", "* * * * *", "--payload", "{"], "is not JSON"),
        (["s", "orders", "* * * * *", "--payload", json.dumps("x" * 2**20)], "the payload has 1,048,578 bytes"),
        (["s", "orders", "* * * * *", "--payload", '"\\u0000"'], "U.0000"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(arguments: list[str], words: str) -> None:
    make_pipeline()
    with pytest.raises(CommandError, match=words):
        call_command("schedule", "create", *arguments)
    assert not Schedule.objects.exists()


@pytest.mark.once
@pytest.mark.parametrize(
    ("day", "runs"),
    [
        (datetime(2026, 3, 28, 12, tzinfo=UTC), ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
    ],
)
def test_a_daily_run_comes_once_on_the_days_when_clocks_change(day: datetime, runs: list[str]) -> None:
    times = schedules.runs_after("30 2 * * *", "Europe/Berlin", day)
    assert [next(times).isoformat() for _ in range(2)] == runs


def schedule(name: str, *, catch_up: str, missed: timedelta, pipeline: str = "orders") -> None:
    """One that runs every minute and has been asleep."""
    plan = schedules.Plan(pipeline=pipeline, cron="* * * * *", catch_up=catch_up, payload={"by": name})
    schedules.create(name, plan, by="tests")
    before = (timezone.now() - missed).replace(second=0, microsecond=0)
    Schedule.objects.filter(name=name).update(next_run_at=before)


@pytest.mark.parametrize(("catch_up", "runs"), [("one", 1), ("all", 1440), ("none", 1)])
def test_after_a_day_of_sleep_the_rule_for_missed_runs_decides(catch_up: str, runs: int) -> None:
    make_pipeline()
    schedule("minutely", catch_up=catch_up, missed=timedelta(days=1))
    fired = schedules.fire()
    # A minute may pass while it fires.
    assert runs <= fired <= runs + 2
    assert TransactionRecord.objects.count() == fired
    assert Schedule.objects.get().next_run_at > timezone.now() - timedelta(minutes=1)


def test_a_schedule_that_cannot_be_fired_does_not_hold_up_the_others() -> None:
    make_pipeline()
    schedule("broken", catch_up="one", missed=timedelta(hours=2))
    schedule("sound", catch_up="one", missed=timedelta(hours=1))
    Schedule.objects.filter(name="broken").update(payload="x" * 2**20)
    with pytest.raises(ScheduleError, match="the schedule 'broken' cannot run: the payload has"):
        schedules.fire()
    assert [record.payload for record in TransactionRecord.objects.all()] == [{"by": "sound"}]
    assert Schedule.objects.get(name="broken").last_run_at is None

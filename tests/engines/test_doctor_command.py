"""`manage.py doctor`: says what is wrong and what to do, and changes nothing."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

import engines
from engines import pipelines, schedules, transactions, workers
from engines.conf import settings
from engines.models import Worker
from engines.reads import doctor
from engines.reads.doctor import fleet, ground
from engines.reads.doctor.finding import Finding
from tests.commands import run
from tests.durable_transactions import submit
from tests.factories import PolicyVersionFactory, make_pipeline
from tests.processes import free_port, manage

pytestmark = pytest.mark.django_db


def examine() -> tuple[int, dict[str, list[dict[str, str]]]]:
    """The exit code, and the findings by what was looked at."""
    output, code = io.StringIO(), 0
    try:
        call_command("doctor", "--json", stdout=output)
    except SystemExit as ended:
        code = int(str(ended.code))
    document = json.loads(output.getvalue())
    assert document["ok"] == (code == 0)
    found: dict[str, list[dict[str, str]]] = {}
    for finding in document["findings"]:
        found.setdefault(finding["check"], []).append(finding)
    return code, found


def levels(check: str) -> list[str]:
    return [finding["level"] for finding in examine()[1][check]]


@pytest.fixture(autouse=True)
def _known_task() -> None:
    engines.task("tests.act.known")(engines.ConsumerTask)


def make_known(name: str = "orders") -> Any:
    return make_pipeline(name, task="tests.act.known")


def test_a_sound_system_is_well() -> None:
    make_known()
    code, found = examine()
    assert code == 0
    assert {check for check, findings in found.items() if findings[0]["level"] == "ok"} == {
        *("database", "migrations", "clock", "statistics", "broker", "disk", "connections"),
        *("tasks", "pipelines", "policies", "executors", "workers", "lost workers", "boundaries", "providers"),
        *(["snapshots"] if connection.vendor == "postgresql" else []),
    }
    assert found["maintenance"][0]["level"] == "warning"
    text = run("doctor")
    assert text.startswith("ok       database: ")
    assert text.endswith("no problems found\n")
    assert "\x1b" not in text


def test_what_a_pipeline_names_must_be_known_here() -> None:
    make_pipeline("foreign", task="elsewhere")
    make_pipeline("remote", task="", executor="nobody")
    make_pipeline("strange", task="tests.act.known", connector="pigeon")
    code, found = examine()
    texts = [finding["text"] for finding in found["pipelines"]]
    assert code == 1
    assert texts == [
        "foreign: no task is named 'elsewhere'",
        "remote: no executor is named 'nobody'",
        "strange: no connector is named 'pigeon'",
    ]
    assert all(finding["hint"] for finding in found["pipelines"])


def test_due_work_without_a_worker_is_a_problem_until_one_serves_it() -> None:
    pipeline = make_known()
    transactions.submit("orders", 1, available_at=timezone.now() + timedelta(hours=1))
    assert levels("workers") == ["ok"]
    submit(pipeline, 2)
    code, found = examine()
    assert code == 1
    assert found["workers"][0]["text"] == "2 due in orders, which no worker serves"
    assert found["workers"][0]["hint"] == "run manage.py consume orders"
    pipelines.pause("orders", by="ada", reason="flood")
    assert levels("workers") == ["warning"]
    pipelines.resume("orders", by="ada", reason="dry")
    workers.enrol(["orders"])
    assert levels("workers") == ["ok"]


def test_a_worker_that_is_silent_or_dead_is_told() -> None:
    make_known()
    worker = workers.enrol(["orders"])
    Worker.objects.filter(pk=worker.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=10))
    assert "has been silent for 10 min" in examine()[1]["lost workers"][0]["text"]
    workers.mark_dead(worker.pk, note="gone")
    assert [finding["text"] for finding in examine()[1]["lost workers"]] == ["1 died within a day"]


def test_schedules_without_maintenance_are_a_problem() -> None:
    make_known()
    schedules.create("nightly", schedules.Plan(pipeline="orders", cron="0 2 * * *"), by="ada")
    code, found = examine()
    assert code == 1
    assert found["maintenance"][0]["text"].endswith("active schedules: 1")
    workers.lead(workers.MAINTENANCE, "host:1:ab")
    assert [finding["text"] for finding in examine()[1]["maintenance"]] == ["run by host:1:ab"]


def test_a_policy_that_is_not_valid_is_named() -> None:
    version = PolicyVersionFactory.create(policy__name="odd", body={"loop": {"limit": -1}})
    policy = version.policy
    policy.active = version
    policy.save()
    finding = examine()[1]["policies"][0]
    assert (finding["level"], "odd: ConsumerPolicy.loop.limit" in finding["text"]) == ("problem", True)


def test_a_policy_of_a_newer_release_is_named_and_obeyed_as_far_as_it_is_known() -> None:
    version = PolicyVersionFactory.create(policy__name="odd", body={"loop": {"limit": 3, "mood": "good"}})
    version.policy.active = version
    version.policy.save()
    finding = examine()[1]["policies"][0]
    assert (finding["level"], "odd: ConsumerPolicy.loop.mood is unknown" in finding["text"]) == ("warning", True)
    assert version.policy.in_force.policy.to_dict()["loop"]["limit"] == 3


@pytest.mark.parametrize(("skew", "level"), [(0, "ok"), (5, "warning"), (60, "problem")])
def test_clocks_that_differ_are_told(skew: int, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "database_time", lambda: timezone.now() + timedelta(seconds=skew))
    assert levels("clock") == [level]


@pytest.mark.once
@pytest.mark.parametrize(("bound", "level"), [("LITTLE_SPACE", "warning"), ("NO_SPACE", "problem")])
def test_a_disk_that_fills_up_is_told(bound: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, bound, 2**80)
    assert levels("disk") == [level]


@pytest.mark.once
def test_a_broker_that_does_not_answer_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"redis://:secret@127.0.0.1:{free_port()}/0"
    monkeypatch.setattr(ground, "settings", lambda: replace(settings(), broker_url=address))
    code, found = examine()
    assert (code, found["broker"][0]["level"]) == (1, "problem")
    assert "secret" not in json.dumps(found)


@pytest.mark.once
def test_no_broker_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ground, "settings", lambda: replace(settings(), broker_url=None))
    assert levels("broker") == ["ok"]


def test_a_database_that_is_too_old_ends_the_examination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ground.OLDEST, connection.vendor, (99,))
    code, found = examine()
    assert (code, list(found)) == (1, ["database", "disk"])
    assert found["database"][0]["hint"] == "upgrade it to 99 or newer"


@pytest.mark.once
def test_a_check_that_fails_is_a_finding_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Iterator[Finding]:
        msg = "out of order"
        raise RuntimeError(msg)

    monkeypatch.setattr(doctor, "REST", [broken, fleet.maintenance])
    code, found = examine()
    assert code == 1
    assert found["broken"][0]["text"] == "could not be checked: RuntimeError: out of order"
    assert "maintenance" in found


@pytest.mark.once
def test_a_database_without_tables_or_without_an_answer_is_told_with_what_to_do(tmp_path: Path) -> None:
    empty = manage("doctor", DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
    assert empty.returncode == 1
    assert "→ run manage.py migrate" in empty.stdout
    silent = manage("doctor", DATABASE_URL=f"postgresql://ada:secret@127.0.0.1:{free_port()}/ergon")
    assert silent.returncode == 1
    assert "problem  database: does not answer: " in silent.stdout
    assert "secret" not in silent.stdout + silent.stderr

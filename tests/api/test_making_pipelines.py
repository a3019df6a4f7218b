"""Pipelines and schedules are made, changed, paused and resumed by machines too, as in the console."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from engines import pipelines, schedules, transactions
from engines.models import Pipeline, Schedule
from engines.pipelines import Plan
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, pointers, post, problem
from tests.commands import ask
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db

OPERATE = ("transactions:read", "transactions:operate")


@pytest.fixture
def api() -> Client:
    return client_with(*OPERATE)


def make(api: Client, **plan: Any) -> Any:
    return post(api, "pipelines", {"name": "orders", "task": "shop.sell", "reason": "a new shop", **plan})


def amend(api: Client, **plan: Any) -> Any:
    return post(api, "pipelines/orders/amend", {"reason": "moved", **plan})


def schedule(api: Client, **plan: Any) -> Any:
    body = {"name": "nightly", "pipeline": "invoices", "cron": "30 2 * * *", "reason": "reports", **plan}
    return post(api, "schedules", body)


def test_a_pipeline_is_made_with_all_that_a_person_can_say(api: Client) -> None:
    plan: dict[str, Any] = {
        "direction": "outbound",
        "connector": "database",
        "policy": "default-producer",
        "priority": 7,
    }
    plan |= {"is_enabled": False, "keep_succeeded_days": 3, "keep_failed_days": 30, "redacted": ["customer.email"]}
    plan |= {"summary": ["total", "lines[].sku"]}
    answer = make(api, **plan)
    told = answer.json()
    assert answer.status_code == 201, told
    assert {name: told[name] for name in plan} == plan
    assert (told["task"], told["executor"], told["policy_version"]) == ("shop.sell", "", 1)
    assert told["depth"] == {"pending": 0, "is_capped": False}
    assert api.get("/api/v1/pipelines/orders").json() == told
    entry = AuditEntry.objects.get(action="pipeline.create")
    assert (entry.actor, entry.reason, entry.target) == ("client:erp", "a new shop", "pipeline orders")
    assert (entry.after or {})["redacted"] == ["customer.email"]


def test_a_pipeline_takes_the_shipped_policy_and_the_database(api: Client) -> None:
    told = make(api).json()
    assert (told["direction"], told["connector"], told["policy"]) == ("inbound", "database", "default")


def test_what_is_not_named_stays_and_an_executor_takes_the_place_of_a_task(api: Client) -> None:
    make(api, priority=7)
    told = amend(api, executor="python").json()
    assert (told["task"], told["executor"], told["priority"]) == ("", "python", 7)
    told = amend(api, task="shop.sell", is_enabled=False).json()
    assert (told["task"], told["executor"], told["is_enabled"]) == ("shop.sell", "", False)
    entry = AuditEntry.objects.filter(action="pipeline.amend").latest("id")
    assert (entry.actor, entry.reason) == ("client:erp", "moved")
    assert (entry.before and entry.before["executor"], entry.after and entry.after["task"]) == ("python", "shop.sell")


@pytest.mark.parametrize(
    ("plan", "pointer"),
    [
        ({"reason": ""}, "/reason"),
        ({"name": None}, "/name"),
        ({"task": ""}, "/task"),
        ({"task": "x" * 201}, "/task"),
        ({"direction": "up"}, "/direction"),
        ({"priority": 2**31}, "/priority"),
        ({"keep_failed_days": 0}, "/keep_failed_days"),
        ({"redacted": "customer"}, "/redacted"),
        ({"redacted": [""]}, "/redacted/0"),
        ({"is_enabled": "maybe"}, "/is_enabled"),
        ({"paused": True}, "/paused"),
    ],
)
def test_a_plan_with_a_wrong_field_is_pointed_at(api: Client, plan: dict[str, Any], pointer: str) -> None:
    assert pointers(problem(make(api, **plan), 400, "invalid_request")) == [pointer]
    assert not Pipeline.objects.exists()


@pytest.mark.parametrize(
    ("plan", "status", "code"),
    [
        ({"name": "no name"}, 400, "invalid_pipeline"),
        ({"executor": "python"}, 400, "invalid_pipeline"),
        ({"policy": "default-producer"}, 400, "invalid_pipeline"),
        ({"policy": "ghost"}, 404, "policy_unknown"),
    ],
)
def test_a_plan_that_makes_no_pipeline_is_refused(api: Client, plan: dict[str, Any], status: int, code: str) -> None:
    problem(make(api, **plan), status, code)
    assert not Pipeline.objects.exists()


def test_a_name_is_given_once(api: Client) -> None:
    make(api)
    problem(make(api), 409, "pipeline_taken")


def make_one(_: int) -> str:
    try:
        pipelines.create("orders", Plan(task="shop.sell"), by="race")
    except pipelines.PipelineTakenError:
        return "taken"
    else:
        return "made"
    finally:
        connection.close()


@pytest.mark.django_db(transaction=True)
def test_of_those_who_make_a_pipeline_at_once_one_succeeds() -> None:
    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(make_one, range(6))) == ["made", *["taken"] * 5]


def test_a_pipeline_that_is_not_there_is_said_to_be_so(api: Client) -> None:
    problem(api.get("/api/v1/pipelines/orders"), 404, "pipeline_unknown")
    problem(amend(api), 404, "pipeline_unknown")


def test_hiding_more_is_for_operators_and_showing_more_for_the_platform(api: Client) -> None:
    make(api, redacted=["customer.email"])
    assert amend(api, redacted=["customer", "iban"]).json()["redacted"] == ["customer", "iban"]
    body = problem(amend(api, redacted=["iban"]), 403, "permission_denied")
    assert "customer" in body["detail"]
    problem(amend(api, redacted=["customer.email", "iban"]), 403, "permission_denied")
    problem(amend(api, redacted=[]), 403, "permission_denied")
    assert Pipeline.objects.get().redacted == ["customer", "iban"]
    platform = client_with(*OPERATE, "platform", name="ops")
    assert amend(platform, redacted=[]).json()["redacted"] == []


def test_redacted_fields_are_named_from_a_shell_as_well() -> None:
    told = ask("pipeline", "create", "orders", "--task", "shop.sell", "--redacted", "customer.email", "iban")
    assert told["redacted"] == ["customer.email", "iban"]
    assert ask("pipeline", "amend", "orders", "--priority", "5")["redacted"] == ["customer.email", "iban"]
    told = ask("pipeline", "amend", "orders", "--redacted", "--keep-failed", "5", "--disable")
    assert (told["redacted"], told["keep_failed_days"], told["enabled"]) == ([], 5, False)
    told = ask("pipeline", "amend", "orders", "--direction", "outbound", "--policy", "default-producer")
    assert (told["direction"], told["policy"]) == ("outbound", "default-producer")


def test_a_schedule_is_made_listed_and_fired(api: Client) -> None:
    make_pipeline("invoices")
    answer = schedule(api, time_zone="Europe/Berlin", payload={"n": 1}, catch_up="none")
    told = answer.json()
    assert (answer.status_code, told["pipeline"], told["time_zone"], told["catch_up"]) == (
        *(201, "invoices", "Europe/Berlin", "none"),
    )
    assert (told["payload"], told["created_by"], told["paused"]) == ({"n": 1}, "client:erp", False)
    page = api.get("/api/v1/schedules").json()
    assert (set(page), [one["name"] for one in page["results"]]) == ({"results", "next", "previous"}, ["nightly"])
    assert "payload" not in page["results"][0]
    assert api.get("/api/v1/schedules/nightly").json() == told
    entry = AuditEntry.objects.get(action="schedule.create")
    assert (entry.actor, entry.reason) == ("client:erp", "reports")
    Schedule.objects.update(next_run_at=told["created_at"], catch_up="one")
    assert schedules.fire() == 1
    assert transactions.claim(pipelines.find("invoices").pk, 1, worker=1)[0].payload == {"n": 1}


def test_a_schedule_is_paused_and_resumed(api: Client) -> None:
    make_pipeline("invoices")
    schedule(api)
    told = post(api, "schedules/nightly/pause", {"reason": "holidays"}).json()
    assert (told["paused"], told["paused_by"], told["pause_reason"]) == (True, "client:erp", "holidays")
    told = post(api, "schedules/nightly/resume", {"reason": "back"}).json()
    assert (told["paused"], told["paused_at"]) == (False, None)
    entries = AuditEntry.objects.filter(target="schedule nightly").exclude(action="schedule.create").order_by("id")
    assert [(entry.actor, entry.action, entry.reason) for entry in entries] == [
        ("client:erp", "schedule.pause", "holidays"),
        ("client:erp", "schedule.resume", "back"),
    ]


def test_what_a_pipeline_hides_is_hidden_in_its_schedules_too(api: Client) -> None:
    make_pipeline("invoices")
    Pipeline.objects.update(redacted=["iban"])
    assert schedule(api, payload={"iban": "DE1", "n": 1}).json()["payload"] == {"iban": "•••", "n": 1}


@pytest.mark.parametrize(
    ("plan", "status", "code"),
    [
        ({"name": "no name"}, 400, "invalid_schedule"),
        ({"cron": "often"}, 400, "invalid_schedule"),
        ({"cron": "0 0 30 2 *"}, 400, "invalid_schedule"),
        ({"time_zone": "Mars/Base"}, 400, "invalid_schedule"),
        ({"time_zone": "Europe"}, 400, "invalid_schedule"),
        ({"cron": "x" * 101}, 400, "invalid_request"),
        ({"catch_up": "some"}, 400, "invalid_request"),
        ({"pipeline": "ghost"}, 404, "pipeline_unknown"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(api: Client, plan: dict[str, Any], status: int, code: str) -> None:
    make_pipeline("invoices")
    problem(schedule(api, **plan), status, code)
    assert not Schedule.objects.exists()


def test_a_schedule_is_made_once_and_an_unknown_one_is_said_to_be_so(api: Client) -> None:
    make_pipeline("invoices")
    schedule(api)
    problem(schedule(api), 409, "schedule_taken")
    problem(api.get("/api/v1/schedules/ghost"), 404, "schedule_unknown")
    for verb in ("pause", "resume"):
        problem(post(api, f"schedules/ghost/{verb}", {"reason": "x"}), 404, "schedule_unknown")

"""The pages of schedules: the next runs, making, pausing and resuming."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import pipelines, schedules
from engines.models import Schedule
from engines.pipelines import Plan
from ergon_site.access.models import AuditEntry

pytestmark = [pytest.mark.django_db, pytest.mark.once]

QUERY_BUDGET = 12
DIALOG = {"_form_submitted": "on", "reason": "stocktaking"}


@pytest.fixture
def schedule() -> Schedule:
    pipelines.create("invoices", Plan(task="t"), by="tests")
    plan = schedules.Plan(pipeline="invoices", cron="30 2 * * *", time_zone="Asia/Tokyo", payload={"day": "last"})
    return schedules.create("nightly", plan, by="tests")


def address(schedule: Schedule, last: str = "change") -> str:
    return f"/admin/engines/schedule/{schedule.pk}/{last}/"


def form(**changes: Any) -> dict[str, Any]:
    sent = {"name": "hourly", "pipeline": "invoices", "cron": "0 * * * *", "time_zone": "Europe/Berlin"}
    return sent | {"payload": '{"a": 1}', "catch_up": "all", "reason": "asked for", **changes}


def test_the_page_shows_the_next_five_runs_by_both_clocks(browse: Client, schedule: Schedule) -> None:
    page = browse.get(address(schedule)).content.decode()
    runs = page.split('class="ergon-runs"')[1].split("</ol>")[0]
    assert runs.count("<li>") == 5
    assert runs.count("02:30</strong>") == 5
    assert runs.count("17:30 UTC") == 5
    assert "&quot;day&quot;: &quot;last&quot;" in page


def test_a_payload_whose_fields_are_redacted_is_not_shown(browse: Client, schedule: Schedule) -> None:
    pipelines.amend("invoices", Plan(redacted=["day"]), by="ada")
    page = browse.get(address(schedule)).content.decode()
    assert "The payload is hidden" in page
    assert "&quot;last&quot;" not in page


def test_pausing_and_resuming_ask_why(browse: Client, schedule: Schedule) -> None:
    browse.post(address(schedule, "pause"), {**DIALOG, "reason": ""})
    assert Schedule.objects.get().paused_at is None
    assert browse.post(address(schedule, "pause"), DIALOG).headers["HX-Redirect"] == address(schedule)
    assert Schedule.objects.get().paused_at is not None
    for page in (address(schedule), "/admin/engines/schedule/?state=paused"):
        assert "stocktaking" in browse.get(page).content.decode()
    browse.post(address(schedule, "resume"), DIALOG)
    assert Schedule.objects.get().paused_at is None
    actions = AuditEntry.objects.filter(reason="stocktaking").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["schedule.pause", "schedule.resume"]


def test_a_run_that_nobody_fired_is_marked(browse: Client, schedule: Schedule) -> None:
    Schedule.objects.update(next_run_at=timezone.now() - timedelta(minutes=10))
    assert ">late</span>" in browse.get("/admin/engines/schedule/").content.decode()
    assert "has not started yet" in browse.get(address(schedule)).content.decode()


def test_without_a_pipeline_the_form_says_what_to_create_first(browse: Client) -> None:
    assert "create a pipeline first" in browse.get("/admin/engines/schedule/add/").content.decode()


def test_a_schedule_is_made(browse: Client, schedule: Schedule) -> None:
    assert "first.</p>" not in browse.get("/admin/engines/schedule/add/").content.decode()
    answer = browse.post("/admin/engines/schedule/add/", form())
    made = Schedule.objects.get(name="hourly")
    assert answer.headers["Location"] == address(made)
    assert (made.cron, made.time_zone, made.payload, made.catch_up) == ("0 * * * *", "Europe/Berlin", {"a": 1}, "all")
    assert made.created_by == "ada"
    assert AuditEntry.objects.get(action="schedule.create", target="schedule hourly").reason == "asked for"


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("cron", "99 * * * *", "is not a cron expression: Bad minute."),
        ("time_zone", "Mars/Olympus", "There is no time zone named &#x27;Mars/Olympus&#x27;."),
        ("name", "nightly", "There is a schedule named nightly already."),
        ("name", "every night", "A schedule&#x27;s name has 1 to 100 letters"),
        ("payload", "{", "This is not JSON"),
        ("pipeline", "nowhere", "Select a valid choice"),
        ("reason", "", "This field is required."),
    ],
)
def test_a_wrong_schedule_is_told_at_its_field(
    browse: Client, schedule: Schedule, field: str, value: str, words: str
) -> None:
    page = browse.post("/admin/engines/schedule/add/", form(**{field: value})).content.decode()
    assert words in page.split(f'id="id_{field}_error"')[1].split("</ul>")[0]
    assert Schedule.objects.count() == 1


def test_the_runs_follow_what_is_typed(browse: Client) -> None:
    page = browse.post("/admin/engines/schedule/runs/", {"cron": "0 6 * * 1", "time_zone": "UTC"}).content.decode()
    assert page.count("06:00</strong>") == 5
    wrong = browse.post("/admin/engines/schedule/runs/", {"cron": "x", "time_zone": "UTC"}).content.decode()
    assert "is not a cron expression" in wrong
    assert "Enter a cron expression" in browse.post("/admin/engines/schedule/runs/").content.decode()


def test_rights(client: Client, hire: Callable[[str], User], schedule: Schedule) -> None:
    client.force_login(hire("viewer"))
    assert "Pause: needs the role operator or lead" in client.get(address(schedule)).content.decode()
    assert client.post(address(schedule, "pause"), DIALOG).status_code == 403
    assert client.post("/admin/engines/schedule/add/", form()).status_code == 403
    client.force_login(hire("operator"))
    assert client.post(address(schedule, "pause"), DIALOG).status_code == 302
    assert client.post("/admin/engines/schedule/add/", form()).status_code == 403
    client.force_login(hire("lead"))
    assert client.post("/admin/engines/schedule/add/", form()).status_code == 302


def test_the_pages_stay_within_their_query_budget(
    client: Client, hire: Callable[[str], User], schedule: Schedule
) -> None:
    client.force_login(hire("administrator"))
    for number in range(22):
        schedules.create(f"s{number}", schedules.Plan(pipeline="invoices", cron="0 2 * * *"), by="ada")
    for page in ("/admin/engines/schedule/", address(schedule), "/admin/engines/schedule/add/"):
        with CaptureQueriesContext(connection) as queries:
            assert client.get(page).status_code == 200
        assert len(queries) <= QUERY_BUDGET, page

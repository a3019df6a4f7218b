"""Lists are filtered by what they offer and by nothing else: no query string tells what a page hides."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client, RequestFactory

from engines import pipelines, schedules
from engines.models import Schedule
from engines.pipelines import Plan
from ergon_site.access.console.pages import ConsoleList
from ergon_site.console import console

pytestmark = [pytest.mark.django_db, pytest.mark.once]

HIDDEN = "DE89370400440532013000"


@pytest.fixture
def viewer(client: Client, hire: Callable[[str], User]) -> Client:
    client.force_login(hire("viewer"))
    return client


@pytest.fixture
def schedule() -> Schedule:
    pipelines.create("payouts", Plan(task="t", redacted=["iban"]), by="tests")
    plan = schedules.Plan(pipeline="payouts", cron="0 6 * * *", time_zone="UTC", payload={"iban": HIDDEN})
    return schedules.create("daily", plan, by="tests")


def lists() -> Iterator[tuple[str, type[Model]]]:
    for model in console()._registry:
        yield f"/admin/{model._meta.app_label}/{model._meta.model_name}/", model


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("place", ["", "export.json", "export.csv"])
def test_a_hidden_field_cannot_be_guessed_by_a_query_string(viewer: Client, place: str) -> None:
    def answer(beginning: str) -> tuple[int, str]:
        found = viewer.get(f"/admin/engines/schedule/{place}?payload__iban__startswith={beginning}")
        return found.status_code, found.headers.get("Location", "")

    assert answer("DE") == answer("XX")
    assert answer("DE")[0] == (400 if place else 302)


def test_no_list_takes_a_column_for_a_filter(browse: Client) -> None:
    for address, model in lists():
        for field in model._meta.concrete_fields:
            query = f"?{field.name}__gte=1"
            assert browse.get(f"{address}{query}").status_code in {302, 400}, f"{address}{query}"
        assert browse.get(f"{address}export.json{query}").status_code == 400, f"{address}export.json{query}"


def test_every_list_is_of_the_kind_that_refuses_undeclared_filters(rf: RequestFactory) -> None:
    for model, page in console()._registry.items():
        assert issubclass(page.get_changelist(rf.get("/")), ConsoleList), model


def test_filters_that_a_list_offers_go_on_working(browse: Client, schedule: Schedule) -> None:
    pipelines.create("refunds", Plan(task="t"), by="tests")
    for value, count in ((schedule.pipeline_id, 1), (0, 0)):
        query = f"?pipeline__id__exact={value}&state=open"
        page: Any = browse.get(f"/admin/engines/schedule/{query}")
        assert len(page.context_data["cl"].result_list) == count
        assert browse.get(f"/admin/engines/schedule/export.json{query}").status_code == 200

"""Charts: the series behind them, as JSON and as tables, for whom and at which cost."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import ergon_site
from engines import pipelines, policies, transactions, workers
from engines.conf import settings as engine_settings
from engines.core import histogram
from engines.models import Durations, Pipeline, Throughput, Worker
from engines.reads import depth
from ergon_site.access.core.charts import window
from facts import ledger, provisioning
from facts.models import Boundary, BoundarySample
from facts.reads import series as fact_series
from providers import calls
from providers.core.errors import ProviderConnectionError
from providers.models import Gate, ProviderMinute
from providers.reads import series as provider_series
from tests.factories import ThroughputFactory, WaitingSampleFactory, make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import eventually
from tests.providers.scripted_providers import AT_ONCE, WHO, scripted

pytestmark = pytest.mark.django_db

QUERY_BUDGET = 12
SERIES = "/admin/series/"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def orders() -> Pipeline:
    return make_pipeline("orders")


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    yield
    engine_settings.cache_clear()


@pytest.fixture
def now() -> datetime:
    return timezone.now().replace(second=0, microsecond=0)


def read(client: Client, of: str, key: Any = "", **asked: Any) -> dict[str, Any]:
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(SERIES, {"of": of, "key": key, **asked})
    assert answer.status_code == 200, answer.content
    assert len(queries) <= QUERY_BUDGET
    assert len(answer.content) < 15_000
    found: dict[str, Any] = answer.json()
    return found


def lines(told: dict[str, Any], title: str) -> dict[str, list[Any]]:
    (chart,) = [chart for chart in told["charts"] if chart["title"] == title]
    return {line["name"]: line["values"] for line in chart["lines"]}


def value(told: dict[str, Any], title: str, name: str, at: datetime) -> Any:
    """By its time: the last step may have ended since."""
    return lines(told, title)[name][int(at.timestamp() - told["begins"]) // told["step"]]


def summary(told: dict[str, Any], title: str) -> str:
    (found,) = [chart["summary"] for chart in told["charts"] if chart["title"] == title]
    return str(found)


def test_what_ended_is_told_by_the_step_and_for_one_pipeline_or_all(
    browse: Client, orders: Pipeline, now: datetime
) -> None:
    other = make_pipeline("other")
    for worker in (1, 2):
        ThroughputFactory.create(
            pipeline=orders, minute=now - 5 * MINUTE, worker=worker, succeeded=25, failed=5, longest=2.6
        )
    ThroughputFactory.create(pipeline=other, minute=now - 5 * MINUTE, succeeded=7)
    ThroughputFactory.create(pipeline=orders, minute=now - timedelta(hours=5), succeeded=1000, longest=1.0)
    hour, day = read(browse, "pipeline", orders.pk), read(browse, "pipeline", orders.pk, range="day")
    assert (hour["step"], hour["ends"] - hour["begins"]) == (60, 3600)
    finished, at = lines(hour, "Finished"), now - 5 * MINUTE
    assert (len(finished["succeeded"]), value(hour, "Finished", "succeeded", at), sum(finished["succeeded"])) == (
        60,
        50,
        50,
    )
    assert (value(hour, "Finished", "failed", at), sum(finished["failed"])) == (10, 10)
    assert summary(hour, "Finished") == "50 succeeded, 10 failed; at most 60 per minute."
    # Of rows from before there were buckets the longest is known, and nothing else.
    assert [value(hour, "Time taken", name, at) for name in ("p50", "p95", "max")] == [None, None, 2.6]
    assert value(hour, "Time taken", "max", at + MINUTE) is None
    assert summary(day, "Finished") == "1,050 succeeded, 10 failed; at most 1,000 per 10 min."
    assert sum(lines(read(browse, "engines"), "Finished")["succeeded"]) == 57
    quiet = read(browse, "pipeline", other.pk, range="15min")
    assert [summary(quiet, title) for title in ("Finished", "Time taken")] == [
        "7 succeeded, 0 failed; at most 7 per minute.",
        "max 0 ms.",
    ]
    zoomed = {"from": int((now - 7 * MINUTE).timestamp()), "to": int((now - MINUTE).timestamp())}
    assert lines(read(browse, "pipeline", orders.pk, **zoomed), "Finished")["succeeded"] == [0, 0, 50, 0, 0, 0]


def test_durations_are_counted_in_buckets_and_told_as_percentiles(browse: Client, orders: Pipeline) -> None:
    transactions.count_durations(orders.pk, [0.02] * 50)
    transactions.count_durations(orders.pk, [0.02] * 45 + [7.0] * 5)
    row = Durations.objects.get(pipeline_id=orders.pk)
    assert {name: count for name in histogram.COLUMNS if (count := getattr(row, name))} == {"took_4": 95, "took_12": 5}
    assert row.longest == 7.0
    told = read(browse, "pipeline", orders.pk, range="15min")
    took = {
        name: [value for value in values if value is not None] for name, values in lines(told, "Time taken").items()
    }
    assert took["max"] == [7.0]
    assert 0.01 < took["p50"][0] < took["p95"][0] <= 0.025
    assert summary(told, "Time taken") == "p50 18 ms, p95 25 ms, max 7 s."
    transactions.count_durations(make_pipeline("other").pk, [9.0])
    assert summary(read(browse, "engines"), "Time taken") == "p50 18 ms, p95 6 s, max 9 s."


def test_counts_become_hours_after_two_days_and_days_after_nine(
    browse: Client, orders: Pipeline, now: datetime
) -> None:
    times = [now - timedelta(days=days) for days in (0, 3, 12)]
    for hours in (1, 2):
        for minutes in (0, 7):
            for at in times:
                minute = at.replace(hour=hours, minute=20 + minutes)
                ThroughputFactory.create(pipeline=orders, minute=minute, succeeded=10)
                Durations.objects.create(pipeline_id=orders.pk, minute=minute, longest=minutes, took_3=10)
    assert transactions.fold_counts() > 0
    assert transactions.fold_counts() == 0
    for model in (Throughput, Durations):
        kept = [model.objects.filter(minute__date=at.date()).count() for at in times]
        assert kept == [4, 2, 1], model
    assert list(Durations.objects.values_list("took_3", "longest").order_by("minute")[:3]) == [
        (40, 7),
        (20, 7),
        (20, 7),
    ]
    week = read(browse, "pipeline", orders.pk, range="week")
    assert week["step"] == 3600
    assert [count for count in lines(week, "Finished")["succeeded"] if count][:2] == [20, 20]


def test_what_waited_is_told_at_its_most_with_gaps_where_there_are_no_samples(
    browse: Client, orders: Pipeline, now: datetime
) -> None:
    nothing = read(browse, "engines", range="15min")
    assert summary(nothing, "Backlog") == "No samples: the command maintain takes one a minute."
    assert set(lines(nothing, "Backlog")["waiting"]) == {None}
    transactions.submit_many("orders", [{"payload": {}, "available_at": now - 7 * MINUTE} for _ in range(5)])
    depth.sample()
    WaitingSampleFactory.create(minute=now - 5 * MINUTE, waiting=20_000, is_capped=True)
    told = read(browse, "engines", range="15min")
    # The clock may have gone on to the next minute since.
    assert [value for value in lines(told, "Backlog")["waiting"] if value is not None] == [20_000, 5]
    assert summary(told, "Backlog") == "5 at last, at most 20,000+."
    assert summary(told, "Longest wait") in {"7 min at last, at most 7 min.", "8 min at last, at most 8 min."}
    # In this pipeline nothing waited when all were sampled, which is no gap.
    mine = lines(read(browse, "pipeline", orders.pk, range="15min"), "Backlog")["waiting"]
    assert [value for value in mine if value is not None] == [0, 5]


def test_calls_of_a_provider_are_told_with_latencies_and_openings(browse: Client, now: datetime) -> None:
    calls.set_quota(WHO, limit=10, window=86_400, by="ada", reason="a contract")
    scripted({}, ProviderConnectionError("no route"), {}).ask()
    gate = Gate.objects.get()
    assert [mark["kind"] for mark in read(browse, "provider", gate.pk)["marks"]] == []
    for _ in range(5):
        scripted(ProviderConnectionError("down"), retry_policy=type(AT_ONCE)(max_attempts=1)).ask()
    ProviderMinute.objects.create(
        gate_id=gate.pk,
        minute=int(now.timestamp() // 60) - 9,
        attempts=4,
        successes=3,
        refusals=2,
        buckets={"136": 3, "170": 1},
    )
    told = read(browse, "provider", gate.pk)
    at = now - 9 * MINUTE
    assert [value(told, "Calls", name, at) for name in ("succeeded", "failed", "refused")] == [3, 1, 2]
    assert summary(told, "Calls").startswith("4 succeeded, 6 failed, ")
    assert value(told, "Time taken", "p50", at) == pytest.approx(0.1, rel=0.1)
    assert value(told, "Time taken", "max", at) == pytest.approx(1.0, rel=0.1)
    (mark,) = told["marks"]
    assert (mark["kind"], "opened" in mark["text"]) == ("breaker", True)
    assert browse.get(mark["address"]).status_code == 200
    assert mark in read(browse, "engines")["marks"]


def test_of_an_account_with_very_many_minutes_the_newest_are_read(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted({}).ask()
    gate, minute = Gate.objects.get(), int(now.timestamp() // 60)
    ProviderMinute.objects.all().delete()
    for ago in range(1, 6):
        ProviderMinute.objects.create(gate_id=gate.pk, minute=minute - ago, attempts=1, successes=1)
    monkeypatch.setattr(provider_series, "MOST_MINUTES", 3)
    steps = provider_series.called(window(now.timestamp(), name="15min"), gate)
    assert [step and step.succeeded for step in steps][-6:] == [None, None, None, 1, 1, 0]
    assert provider_series.whole(steps).succeeded == 2


def test_what_passed_a_boundary_is_sampled_and_told(browse: Client, now: datetime) -> None:
    boundary = make_boundary()
    for number in range(3):
        ledger.append(draft(str(number)))
    assert fact_series.sample() == 1
    eventually(lambda: fact_series.sample() == 0, "a minute has been sampled already")
    mine = {"boundary_id": boundary.pk}
    BoundarySample.objects.all().delete()
    for ago, newest, reached in ((70, -1, -1), (9, 1, -1), (8, 4, 1), (3, 2, 2)):
        minute = now - ago * MINUTE
        BoundarySample.objects.create(
            **mine, minute=minute, newest=newest, reached=reached, backlog=newest - reached, lag=ago
        )
    told = read(browse, "boundary", boundary.pk)
    then = {minutes: now - minutes * MINUTE for minutes in (9, 8, 7, 3)}
    # A boundary that is behind its last sample was restored: nothing was appended then.
    assert [value(told, "Facts", "appended", at) for at in then.values()] == [2, 3, None, 0]
    assert [value(told, "Facts", "handed over", at) for at in then.values()] == [0, 2, None, 1]
    assert value(told, "Backlog", "backlog", then[8]) == 3
    assert summary(told, "Lag") == "3 s at last, at most 9 s."
    provisioning.close_gate(PLANT, OFFICE, by="ada", reason="the line moves")
    Boundary.objects.update(gate_by="")
    assert [mark["text"].split(": ")[1] for mark in read(browse, "boundary", boundary.pk)["marks"]] == [
        "autonomous",
        "gate closed by ada",
    ]


def test_samples_of_boundaries_are_thinned_and_then_forgotten(now: datetime) -> None:
    for days, minute in ((0, 7), (3, 7), (3, 15), (10, 15)):
        at = (now - timedelta(days=days)).replace(minute=minute)
        BoundarySample.objects.create(boundary_id=1, minute=at, newest=days, reached=0, backlog=0, lag=0)
    assert fact_series.forget() == 2
    assert sorted(BoundarySample.objects.values_list("newest", flat=True)) == [0, 3]


def test_policy_changes_pauses_and_releases_are_marked_with_a_link_to_their_record(
    client: Client, hire: Callable[[str], User], settings: Any, orders: Pipeline
) -> None:
    make_pipeline("other")
    policies.write(orders.policy.name, {}, by="ada", reason="calmer")
    pipelines.pause("orders", by="ada", reason="the bank moves")
    pipelines.resume("orders", by="ada", reason="moved")
    pipelines.pause("other", by="ada", reason="")
    for release in ("1.0", "1.0", "1.1", ""):
        settings.ERGON_RELEASE = release
        engine_settings.cache_clear()
        workers.enrol(["orders"])
    assert Worker.objects.latest("pk").release == ""
    for role, record in (("viewer", "/admin/engines/"), ("auditor", "/admin/access/auditentry/")):
        client.force_login(hire(role))
        marks = read(client, "pipeline", orders.pk)["marks"]
        assert sorted(mark["kind"] for mark in marks) == ["deploy", "pause", "pause", "policy"]
        for mark in marks:
            assert mark["address"].startswith("/admin/engines/worker/" if mark["kind"] == "deploy" else record)
            assert client.get(mark["address"]).status_code == 200
        texts = {mark["text"].split(" on ")[0] for mark in marks}
        assert texts >= {"pipeline orders: paused by ada", "pipeline orders: resumed by ada", "release 1.1"}
        assert "pipeline other: paused by ada" in {mark["text"] for mark in read(client, "engines")["marks"]}


def test_where_no_release_is_set_a_new_version_of_ergon_is_marked(
    browse: Client, settings: Any, orders: Pipeline
) -> None:
    now = settings.ERGON_RELEASE
    assert now == f"Ergon {ergon_site.__version__}"
    for release in ("Ergon 0.1.9", now):
        settings.ERGON_RELEASE = release
        engine_settings.cache_clear()
        workers.enrol(["orders"])
    (mark,) = read(browse, "pipeline", orders.pk)["marks"]
    assert mark["text"].startswith(f"release {now} on ")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({}, 404),
        ({"of": "nothing"}, 404),
        ({"of": "pipeline"}, 404),
        ({"of": "pipeline", "key": "0"}, 404),
        ({"of": "pipeline", "key": "' OR 1=1"}, 404),
        ({"of": "pipeline", "key": "9" * 5000}, 404),
        ({"of": "pipeline", "key": "\x00"}, 404),
        ({"of": "engines", "range": "year"}, 400),
        ({"of": "engines", "range": "<script>"}, 400),
        ({"of": "engines", "from": "1", "to": "2"}, 400),
        ({"of": "engines", "from": "1' --", "to": "2"}, 400),
        ({"of": "engines", "from": "0", "to": "9999999999"}, 400),
    ],
)
def test_what_cannot_be_charted_is_refused(browse: Client, asked: dict[str, str], status: int) -> None:
    answer = browse.get(SERIES, asked)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"].endswith(".")
        assert "<script>" not in answer.content.decode()
    assert browse.get(f"{SERIES}table/", asked).status_code == status


def test_charts_are_for_those_who_may_see_the_console(client: Client, hire: Callable[[str], User]) -> None:
    for address in (SERIES, f"{SERIES}table/"):
        assert client.get(address, {"of": "engines"}).status_code == 302
    User.objects.create_user("nobody", is_staff=True)
    client.force_login(User.objects.get(username="nobody"))
    for address in (SERIES, f"{SERIES}table/"):
        assert client.get(address, {"of": "engines"}).status_code == 403
    client.force_login(hire("viewer"))
    assert client.get(SERIES, {"of": "engines"}).status_code == 200


def test_a_chart_that_has_not_changed_is_not_sent_again(browse: Client, orders: Pipeline, now: datetime) -> None:
    # A dragged range, which does not move with the clock.
    asked: dict[str, Any] = {
        "of": "pipeline",
        "key": orders.pk,
        "from": int(now.timestamp()) - 3600,
        "to": int(now.timestamp()) - 60,
    }
    first = browse.get(SERIES, asked)
    assert first.headers["Cache-Control"] == "private, max-age=5"
    assert "Cookie" in first.headers["Vary"]
    again = browse.get(SERIES, asked, headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    ThroughputFactory.create(pipeline=orders, minute=now - 5 * MINUTE, succeeded=1)
    changed = browse.get(SERIES, asked, headers={"If-None-Match": first.headers["ETag"]})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != first.headers["ETag"]


def test_the_same_numbers_are_readable_as_tables_without_a_script(
    browse: Client, orders: Pipeline, now: datetime
) -> None:
    ThroughputFactory.create(pipeline=orders, minute=now - 5 * MINUTE, succeeded=1234, failed=1, longest=2.6)
    pipelines.pause("orders", by="ada", reason="")
    page = browse.get("/admin/").content.decode()
    assert (
        '<noscript><p>Charts are drawn with JavaScript. <a class="ergon-link" href="/admin/series/table/?of=engines">'
        in page
    )
    assert "chart/chart.js" not in page
    table = browse.get(f"{SERIES}table/?of=pipeline&key={orders.pk}&range=15min").content.decode()
    for words in (
        "<td>1,234</td>",
        "<td>2.6 s</td>",
        "<td>–</td>",
        "1,234 succeeded, 1 failed",
        "orders: paused by ada",
    ):
        assert words in table
    assert f"{now - 5 * MINUTE:%Y-%m-%d %H:%M}</th>" in table


def test_the_list_of_pipelines_shows_the_last_hour_of_each(browse: Client, orders: Pipeline, now: datetime) -> None:
    make_pipeline("quiet")
    ThroughputFactory.create(pipeline=orders, minute=now - 30 * MINUTE, succeeded=4, failed=1)
    ThroughputFactory.create(pipeline=orders, minute=now, succeeded=2)
    ThroughputFactory.create(pipeline=orders, minute=now - 90 * MINUTE, succeeded=50)
    page = browse.get("/admin/engines/pipeline/").content.decode()
    assert "<title>7 finished, at most 5 in 5 minutes</title><rect" in page
    assert "<title>none finished</title></svg>" in page

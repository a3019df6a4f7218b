"""What waits is kept minute by minute: seldom, in few rows, and with few statements."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import transactions
from engines.models import Pipeline, WaitingSample
from engines.reads import depth
from engines.reads.depth import ALL_PIPELINES
from tests.durable_transactions import submit
from tests.factories import WaitingSampleFactory, make_pipeline

pytestmark = pytest.mark.django_db


def in_another_minute() -> None:
    """As if what was sampled so far had been so an hour ago."""
    for sample in WaitingSample.objects.all():
        WaitingSample.objects.filter(pk=sample.pk).update(minute=sample.minute - timedelta(hours=1))


def kept(pipeline: Pipeline | None = None) -> list[int]:
    rows = WaitingSample.objects.filter(pipeline_id=pipeline.pk if pipeline else ALL_PIPELINES)
    return list(rows.order_by("minute").values_list("waiting", flat=True))


def test_a_sample_is_kept_of_each_pipeline_in_which_something_waits_and_of_all_together() -> None:
    orders, mail, idle = make_pipeline(), make_pipeline("mail"), make_pipeline("idle")
    submit(orders, 3)
    submit(mail, 4)
    assert depth.sample() == 2
    assert (kept(orders), kept(mail), kept(idle), kept()) == ([3], [4], [], [7])


def test_a_minute_in_which_nothing_waits_is_kept_too() -> None:
    make_pipeline()
    assert depth.sample() == 0
    assert kept() == [0]


def test_a_minute_is_sampled_once_and_the_next_one_again() -> None:
    orders = make_pipeline()
    depth.sample()
    in_another_minute()
    submit(orders, 2)
    depth.sample()
    submit(orders, 5)
    depth.sample()
    assert kept() in ([0, 2], [0, 2, 7])  # a minute may have ended meanwhile


def test_only_what_is_due_has_an_age() -> None:
    make_pipeline()
    transactions.submit("orders", {}, available_at=timezone.now() + timedelta(hours=1))
    depth.sample()
    assert WaitingSample.objects.get(pipeline_id=ALL_PIPELINES).oldest_age is None
    in_another_minute()
    transactions.submit("orders", {}, available_at=timezone.now() - timedelta(hours=1), priority=-3)
    depth.sample()
    age = WaitingSample.objects.filter(pipeline_id=ALL_PIPELINES).latest("minute").oldest_age
    assert age is not None
    assert 3600 <= age < 3700


def test_the_oldest_is_found_below_any_number_of_higher_priorities() -> None:
    orders = make_pipeline()
    for priority in range(30):
        transactions.submit("orders", {}, priority=priority)
    transactions.submit("orders", {}, priority=-50, available_at=timezone.now() - timedelta(hours=3))
    age = depth.depths([orders.pk])[orders.pk].age(timezone.now())
    assert age is not None
    assert age >= 3 * 3600
    (told,) = depth.of_all().values()
    assert told == depth.depths([orders.pk])[orders.pk]


def test_a_long_queue_is_sampled_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "COUNTED", 20)
    orders, mail = make_pipeline(), make_pipeline("mail")
    submit(orders, 50)
    submit(mail, 5)
    depth.sample()
    told = {row.pipeline_id: (row.waiting, row.is_capped) for row in WaitingSample.objects.all()}
    assert told == {orders.pk: (21, True), mail.pk: (5, False), ALL_PIPELINES: (26, True)}


def test_minutes_that_nobody_sampled_are_unknown_and_not_empty() -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    for ago in (0, 2, 90):
        minute = now - timedelta(minutes=ago)
        WaitingSampleFactory.create(minute=minute, waiting=ago)
    told = [sample and sample.waiting for sample in depth.series(4, now=now)]
    assert told == [None, 2, None, 0]


def test_samples_are_forgotten_when_no_page_shows_them_any_more() -> None:
    now = timezone.now().replace(minute=7)
    for days in (0, 1, 3, 10):
        WaitingSampleFactory.create(minute=now - timedelta(days=days), waiting=days)
    for days in (4, 11):
        WaitingSampleFactory.create(minute=now.replace(minute=15) - timedelta(days=days), waiting=days)
    assert depth.forget() == 3
    assert kept() == [4, 1, 0]


def test_many_pipelines_are_sampled_with_no_more_statements_than_one() -> None:
    for number in range(20):
        submit(make_pipeline(f"p{number}"), 1)
    with CaptureQueriesContext(connection) as queries:
        assert depth.sample() == 20
    statements = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(statements) <= 5

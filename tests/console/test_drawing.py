"""What pages draw by themselves: charts and trees of JSON."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engines.models import WaitingSample
from ergon_site.access.console import drawing, json_view
from ergon_site.dashboard import charts

pytestmark = pytest.mark.once

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def series(*minutes: tuple[int, int, float, float]) -> list[dict[str, Any]]:
    return [
        {"minute": BEGIN + timedelta(minutes=place), "ok": ok, "bad": bad, "spent": spent, "most": most}
        for place, (ok, bad, spent, most) in enumerate(minutes)
    ]


def sample(minute: int, waiting: int, **fields: Any) -> WaitingSample:
    return WaitingSample(pipeline_id=0, minute=BEGIN + timedelta(minutes=minute), waiting=waiting, **fields)


def test_columns_are_as_high_as_their_share_and_empty_ones_are_not_drawn() -> None:
    columns = drawing.columns([0, 5, 10, 0])
    assert [(one.x, one.height, one.y) for one in columns] == [(25.0, 15.0, 15.0), (50.0, 30.0, 0.0)]


def test_nothing_draws_nothing() -> None:
    assert drawing.columns([]) == []
    assert drawing.columns([0, 0]) == []
    assert drawing.line([None, None], 0.0) == ""


def test_a_line_is_broken_where_there_is_nothing_and_a_lone_value_is_seen() -> None:
    assert drawing.line([1.0, None, 2.0, 0.0], 2.0) == "M12.50 15.00 L12.50 15.00 M62.50 0.00 L62.50 0.00 L87.50 30.00"


def test_minutes_are_put_together_with_their_mean_and_their_longest() -> None:
    (step,) = charts.steps(series((3, 1, 2.0, 1.5), (4, 0, 2.0, 0.5)), 2)
    assert (step.succeeded, step.failed, step.mean, step.longest) == (7, 1, 0.5, 1.5)


def test_a_quiet_time_is_said_in_words() -> None:
    told = [chart.summary for chart in charts.charts_of(series((0, 0, 0.0, 0.0)), 1)]
    assert told == ["None succeeded.", "None failed.", "Nothing finished."]


def test_what_waited_is_drawn_at_its_most_and_broken_where_nobody_looked() -> None:
    samples = [sample(0, 10), sample(1, 40), None, None, sample(4, 20, oldest_age=90.0), None]
    depths, ages = charts.of_waiting(samples, 2)
    assert depths.summary == "20 waiting at 00:04, at most 40."
    assert depths.lines == [("waiting", drawing.line([40, None, 20], 40))]
    assert ages.summary == "Oldest due for 90 s at 00:04, at most 90 s."
    assert ages.lines == [("oldest", drawing.line([0.0, None, 90.0], 90.0))]


def test_a_backlog_that_nobody_looked_at_says_who_would_look() -> None:
    told = {chart.summary for chart in charts.of_waiting([None, None], 1)}
    assert told == {"No samples: the command maintain takes one a minute."}


def test_an_empty_backlog_is_said_in_words() -> None:
    told = [chart.summary for chart in charts.of_waiting([sample(0, 0)], 1)]
    assert told == ["No backlog.", "No transaction was due."]


def test_a_tree_escapes_everything_and_folds_what_is_deep() -> None:
    tree = json_view.tree({"<k>": ["<v>", {"a": {"b": 1}}]})
    assert "<k>" not in tree
    assert "<v>" not in tree
    assert tree.count("<details open>") == 2
    assert tree.count("<details>") == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (list(range(1000)), "… and 800 more"),
        ({"k" * 9: "x" * 1000}, "(1,002 characters)"),
        ([[[[1] * 100] * 100] * 3] * 3, "… and "),
    ],
)
def test_what_is_too_much_for_one_page_is_counted_instead(value: Any, words: str) -> None:
    tree = json_view.tree(value)
    assert words in tree
    assert len(tree) < 500_000


def test_what_is_nested_too_deeply_says_so() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply to display" in json_view.tree(deep)
    assert json_view.text(deep) == "nested too deeply to display"


def test_a_long_document_is_cut_and_says_how_long_it_is() -> None:
    text = json_view.text("x" * 300_000)
    assert text.endswith("… cut here; the whole has 300,002 characters")

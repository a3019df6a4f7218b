"""What pages draw by themselves: sparklines, trees of JSON and measured times."""

from typing import Any

import pytest

from ergon_site.access.console import cells, drawing, json_view

pytestmark = pytest.mark.once


def test_columns_are_as_high_as_their_share_and_empty_ones_are_not_drawn() -> None:
    columns = drawing.columns([0, 5, 10, 0])
    assert [(one.x, one.height, one.y) for one in columns] == [(25.0, 15.0, 15.0), (50.0, 30.0, 0.0)]


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        *[(None, "–"), (0, "0 ms"), (1.24, "1.2 ms"), (999, "999 ms"), (1240, "1.24 s"), (999_000, "999 s")],
        *[(1_000_000, "16 min 40 s"), (10_000_000, "2 h 46 min")],
    ],
)
def test_a_measured_time_is_written_without_an_exponent(measured: float | None, text: str) -> None:
    assert cells.milliseconds(measured) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 bytes"), (1, "1 byte"), (1023, "1,023 bytes"), (1536, "1.5 KiB")])
def test_a_size_is_written_in_the_unit_that_reads_best(number: int, text: str) -> None:
    assert cells.size(number) == text


def test_nothing_draws_nothing() -> None:
    assert drawing.columns([]) == []
    assert drawing.columns([0, 0]) == []


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

"""Benchmarks that nobody has run for a while still run, and the page of figures tells what they measure."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import goals
from benchmarks.goals import Figure, at_most
from tests.processes import run_module

pytestmark = pytest.mark.once


def test_the_benchmark_of_the_api_compares_its_contenders() -> None:
    ended = run_module("benchmarks", "api", "--quick")
    assert ended.returncode == 0, ended.stderr
    measured, _, told = ended.stdout.partition("\ngoals\n")
    contenders = [line.partition("  ")[0] for line in measured.splitlines()]
    assert contenders == ["== api", "plain Django view", "bare APIView", "guarded APIView"]
    assert told.strip().startswith("an `APIView` with token, scope and rate / a bare one")


def test_a_benchmark_says_which_package_it_lacks() -> None:
    ended = run_module("benchmarks", "providers", "--quick")
    assert ended.stderr == "compares with pybreaker, which is not installed here: make bench ARGS=providers\n"


def test_whoever_asks_for_help_is_told_the_names_and_nothing_is_run() -> None:
    ended = run_module("benchmarks", "--help")
    assert ended.returncode == 0
    assert "Benchmarks: api, engines, " in ended.stdout
    assert "==" not in ended.stdout


def test_the_page_of_figures_has_the_rows_and_goals_that_the_benchmarks_have() -> None:
    tables = dict(goals.rows(goals.PAGE.read_text()))
    assert set(tables) == {"engines", "executors", "facts", "idle", "providers", "queue", "start"}
    for name, rows in tables.items():
        assert rows == [(one.what, one.told_goal) for one in import_module(f"benchmarks.{name}").goals()]


def test_a_run_replaces_its_own_table_and_leaves_the_rest_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Figures\n\n<!-- figures: one -->\nold\n<!-- end of figures -->\n\nand more\n")
    figures = [
        Figure("drain / raw", 0.5, 0.55),
        at_most("idle", 0.2, 0.3, "{:.1f} %"),
        at_most("a command", None, 0.7, "{:.1f} s"),
    ]
    goals.save(figures, tmp_path / "told")
    goals.write("one", goals.load(tmp_path / "told"), page)
    goals.write("another", figures, page)
    written = page.read_text()
    assert written.startswith("# Figures\n\n<!-- figures: one -->\nMeasured on ")
    assert written.endswith(
        "| drain / raw | at least 0.55 times | 0.50 times, missed |\n"
        "| idle | at most 0.3 % | 0.2 % |\n"
        "| a command | at most 0.7 s | not measured |\n"
        "<!-- end of figures -->\n\nand more\n"
    )
    assert list(goals.rows(written)) == [("one", [(one.what, one.told_goal) for one in figures])]

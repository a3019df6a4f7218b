"""Chores: when each is due."""

from engines.core.errors import headline
from engines.core.pacing import Intervals


def test_everything_is_due_at_first_and_again_one_interval_after_it_was_done() -> None:
    rota = Intervals({"often": 1.0, "seldom": 10.0})
    assert rota.due(0.0) == ["often", "seldom"]
    rota.done("often", 0.0)
    rota.done("seldom", 0.5)
    assert rota.due(0.9) == []
    assert rota.next_at() == 1.0
    assert rota.due(1.0) == ["often"]


def test_the_longest_waiting_comes_first() -> None:
    rota = Intervals({"a": 2.0, "b": 1.0})
    rota.done("a", 0.0)
    rota.done("b", 0.0)
    assert rota.due(5.0) == ["b", "a"]


def test_without_chores_nothing_is_ever_due() -> None:
    assert (Intervals({}).due(0.0), Intervals({}).next_at()) == ([], float("inf"))


def test_the_headline_of_an_error_leaves_out_what_follows() -> None:
    assert headline(ValueError("refused\nDETAIL: Failing row contains (secret)")) == "refused"
    assert headline(ValueError(" \n ")) == "ValueError"
    assert headline(ValueError()) == "ValueError"

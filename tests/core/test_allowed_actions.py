"""What a page says beside a button that cannot be pressed."""

import pytest

from engines.core import allowed_actions
from engines.core.states import GroupState, LetterState, State


@pytest.mark.parametrize(
    ("state", "begins"),
    [
        (State.PENDING, ""),
        (State.RUNNING, ""),
        (State.SUCCEEDED, "It has succeeded; only"),
        (State.FAILED, "It has failed; only"),
        (State.CANCELLED, "It is cancelled; only"),
    ],
)
def test_only_a_transaction_that_has_not_ended_can_be_cancelled(state: State, begins: str) -> None:
    words = allowed_actions.of_cancelling(state, is_requested=False)
    assert words.startswith(begins)
    assert (words == "") is not state.is_final


def test_the_cancellation_of_a_running_transaction_is_requested_once() -> None:
    words = allowed_actions.of_cancelling(State.RUNNING, is_requested=True)
    assert words == "Its cancellation was requested."
    # A worker of an older release has put it back, which knows of no requests.
    assert allowed_actions.of_cancelling(State.PENDING, is_requested=True) == ""


@pytest.mark.parametrize(
    ("state", "letter", "words"),
    [
        (State.PENDING, None, "It is pending; only a finished transaction can be replayed."),
        (State.RUNNING, None, "It is running; only a finished transaction can be replayed."),
        (State.SUCCEEDED, None, ""),
        (State.FAILED, "open", ""),
        (State.FAILED, "replayed", "Its dead letter was replayed."),
    ],
)
def test_what_has_ended_can_be_replayed_once_for_each_failure(state: State, letter: str | None, words: str) -> None:
    assert allowed_actions.of_replaying(state, letter) == words


@pytest.mark.parametrize(
    ("letter", "can_run", "words"),
    [
        (LetterState.OPEN, True, ""),
        (LetterState.OPEN, False, "It does not come from a pipeline and cannot be replayed."),
        (LetterState.DISCARDED, True, "It was discarded."),
    ],
)
def test_an_open_dead_letter_is_replayed_where_something_runs_it(
    letter: LetterState, words: str, *, can_run: bool
) -> None:
    assert allowed_actions.of_settling(letter, can_run=can_run) == words


def test_a_dead_letter_whose_payload_is_not_what_failed_is_replayed_with_an_edited_one() -> None:
    words = "Its payload could not be kept as it was: edit it to replay it."
    assert allowed_actions.of_settling(LetterState.OPEN, can_run=True, is_whole=False) == words


@pytest.mark.parametrize(
    ("group", "wanted", "words"),
    [
        (GroupState.OPEN, GroupState.MUTED, ""),
        (GroupState.MUTED, GroupState.MUTED, "It is already muted."),
        (GroupState.REGRESSED, GroupState.OPEN, "It is already regressed."),
        (GroupState.RESOLVED, GroupState.OPEN, ""),
    ],
)
def test_a_group_is_decided_on_only_to_change_it(group: GroupState, wanted: GroupState, words: str) -> None:
    assert allowed_actions.of_deciding(group, wanted) == words


def test_a_group_is_acted_on_while_it_has_open_letters_and_nobody_else_acts() -> None:
    assert allowed_actions.of_acting_on_all(3, None) == ""
    assert allowed_actions.of_acting_on_all(0, None) == "It has no unresolved dead letters."
    assert "is paused" in allowed_actions.of_acting_on_all(3, "paused")


@pytest.mark.parametrize(
    ("state", "wanted", "can"),
    [("running", "paused", True), ("done", "cancelled", False), ("stopped", "running", True)],
)
def test_a_bulk_operation_turns_where_it_may(state: str, wanted: str, *, can: bool) -> None:
    assert allowed_actions.of_turning(state, wanted) == ("" if can else f"It is {state}.")


@pytest.mark.parametrize(
    ("verb", "is_paused", "why"),
    [
        ("pause", False, ""),
        ("pause", True, "It is already paused."),
        ("resume", True, ""),
        ("resume", False, "It is not paused."),
    ],
)
def test_what_is_paused_already_is_not_paused_again(verb: str, *, is_paused: bool, why: str) -> None:
    assert allowed_actions.of_pausing(verb, is_paused=is_paused) == why

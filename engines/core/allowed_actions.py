"""Why an action is not allowed in a state; empty where it is. For buttons: the verbs refuse anyway."""

from engines.core.states import GroupState, LetterState, State

# What a bulk operation may become, from what.
TURNS = {
    "paused": frozenset({"running"}),
    "running": frozenset({"paused", "stopped"}),
    "cancelled": frozenset({"running", "paused", "stopped"}),
}


def of_cancelling(state: State, *, is_requested: bool) -> str:
    if state.is_final:
        return f"It {state.predicate}; only a pending or running transaction can be cancelled."
    return "Its cancellation was requested." if is_requested and state is State.RUNNING else ""


def of_replaying(state: State, letter: str | None) -> str:
    """A failed one is replayed once: its dead letter says whether it was."""
    if not state.is_final:
        return f"It is {state.word}; only a finished transaction can be replayed."
    if letter is not None and letter != LetterState.OPEN.value:
        return f"Its dead letter was {letter}."
    return ""


def of_settling(letter: LetterState, *, can_run: bool, is_whole: bool = True) -> str:
    """Of replaying a dead letter, or of discarding it (which needs nothing to run it)."""
    if letter is not LetterState.OPEN:
        return f"It was {letter.value}."
    if not can_run:
        return "It does not come from a pipeline and cannot be replayed."
    return "" if is_whole else "Its payload could not be kept as it was: edit it to replay it."


def of_deciding(group: GroupState, wanted: GroupState) -> str:
    is_so = group is wanted or (wanted is GroupState.OPEN and group is GroupState.REGRESSED)
    return f"It is already {'unresolved' if group is GroupState.OPEN else group.value}." if is_so else ""


def of_pausing(verb: str, *, is_paused: bool) -> str:
    """Of pausing or resuming a pipeline or a schedule."""
    if (verb == "pause") is not is_paused:
        return ""
    return "It is already paused." if is_paused else "It is not paused."


def of_acting_on_all(open_count: int, operation: str | None) -> str:
    """Of replaying or discarding the open dead letters of a group."""
    if operation is not None:
        return f"A bulk operation on this group is {operation}: wait for it, or cancel it."
    return "" if open_count > 0 else "It has no unresolved dead letters."


def of_turning(operation: str, wanted: str) -> str:
    return "" if operation in TURNS[wanted] else f"It is {operation}."

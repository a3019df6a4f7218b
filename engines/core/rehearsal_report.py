"""A rehearsal in words: its figures beside the recorded ones, and what is not known."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from engines.core.rehearsal import Rehearsal, Why
from engines.core.steps import WORK, Stage
from ergon_site.access.core.durations import exact_span

# The fields that a rehearsal can judge; the others say how much runs at once, and where it comes from.
REHEARSED = (
    *(f"steps.{step}.retry." for step in ("process", "produce", "success", "exception")),
    "loop.transaction_timeout",
    "retry_after_ceiling",
)
TIMES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
HANDLERS = {Stage.SUCCESS: "success handler", Stage.EXCEPTION: "exception handler"}
NONE = "no change"


class Figure(NamedTuple):
    """A number as recorded and as rehearsed; the way it goes is `better`, `worse`, or `neither` or unknown."""

    name: str
    recorded: str
    rehearsed: str
    change: str
    way: str = "neither"


def figures(told: Rehearsal) -> list[Figure]:
    """Attempts, dead letters and seconds waited, before and after."""
    before, after, unknown = told.recorded, told.rehearsed, told.unknowns
    least = "at least " if unknown else ""
    fewest, most = after.dead_letters, after.dead_letters + unknown
    low, high = fewest - before.dead_letters, most - before.dead_letters
    return [
        Figure(
            "Attempts",
            f"{before.attempts:,}",
            f"{least}{after.attempts:,}",
            _change(after.attempts - before.attempts, "more", "fewer", is_least=bool(unknown)),
        ),
        Figure(
            "Dead letters",
            f"{before.dead_letters:,}",
            f"{fewest:,} to {most:,}" if unknown else f"{fewest:,}",
            _range(low, high),
            way="worse" if low > 0 else "better" if high < 0 else "neither",
        ),
        Figure(
            "Waited between attempts",
            exact_span(before.waited),
            f"{least}{exact_span(after.waited)}",
            _change(after.waited - before.waited, "longer", "shorter", is_least=bool(unknown), tell=exact_span),
        ),
    ]


def sentences(told: Rehearsal) -> list[str]:
    """What would have gone differently, and what is unknown."""
    if not told.transactions:
        return ["There is nothing to rehearse with: no whole record of a finished transaction."]
    same = "No transaction would have gone differently."
    if told.changed:
        same = f"{_many(told.changed, 'transaction')} would have ended the same, with other attempts or waits."
    return list(_sentences(told)) or [same]


def size(result: Mapping[str, Any]) -> str:
    """The size of the sample, and which transactions it holds."""
    told, pipelines = Rehearsal.from_dict(result["total"]), result["pipelines"]
    newest = "the newest " if any(one["is_capped"] for one in pipelines) else ""
    where = f"of {pipelines[0]['name']}" if len(pipelines) == 1 else f"of {_many(len(pipelines), 'pipeline')}"
    return f"Rehearsed with {newest}{_many(told.transactions, 'transaction')} {where} from the last 24 hours."


def notes(result: Mapping[str, Any]) -> list[str]:
    """What would have gone differently, what is unknown, and what the figures do not cover."""
    told = Rehearsal.from_dict(result["total"])
    said = sentences(told)
    if told.left_out:
        they = "its record is" if told.left_out == 1 else "their records are"
        said.append(f"{_many(told.left_out, 'transaction')} left out: {they} not one whole run, such as after a stop.")
    if not result["are_all_pipelines"]:
        said.append(f"Only the first {len(result['pipelines'])} pipelines were rehearsed.")
    if result["unrehearsed"]:
        said.append(f"Not rehearsed, since no record tells what it would do: {', '.join(result['unrehearsed'])}.")
    return said


def unrehearsed(paths: Iterable[str]) -> list[str]:
    """The changed fields that a rehearsal cannot judge."""
    return [path for path in paths if not path.startswith(REHEARSED)]


def _sentences(told: Rehearsal) -> Iterator[str]:
    if told.new_dead_letters:
        one = "a dead letter" if told.new_dead_letters == 1 else "dead letters"
        yield f"{_many(told.new_dead_letters, 'transaction')} that succeeded would have become {one}."
    if told.cut:
        yield f"{_many(told.cut, 'attempt')} would have been cut by a time limit."
    for (stage, number, why), count in told.unknown:
        if why is Why.LONGER:
            whose = "" if stage in WORK else f" of a {HANDLERS[stage]}"
            yield f"{_many(count, 'attempt')}{whose} that timed out would have had longer: outcome unknown."
        else:
            whose = _many(count, "transaction") if stage in WORK else _many(count, HANDLERS[stage])
            yield f"{whose} would have been tried {_time(number)}: outcome unknown."
    if told.handlers:
        yield f"{_many(told.handlers, HANDLERS[Stage.EXCEPTION])} would have run, if the task has one: outcome unknown."


def _time(number: int) -> str:
    return f"a {TIMES[number - 1]} time" if number <= len(TIMES) else f"{number:,} times"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _change(difference: float, more: str, less: str, *, is_least: bool, tell: Any = "{:,}".format) -> str:
    if difference == 0:
        return "no change, or more" if is_least else NONE
    if difference > 0:
        return f"{'at least ' if is_least else ''}{tell(difference)} {more}"
    return f"{'at most ' if is_least else ''}{tell(-difference)} {less}"


def _range(low: int, high: int) -> str:
    if low == high:
        return _change(low, "more", "fewer", is_least=False)
    if high <= 0:
        return f"{-high:,} to {-low:,} fewer"
    if low >= 0:
        return f"{low:,} to {high:,} more"
    return f"{-low:,} fewer to {high:,} more"

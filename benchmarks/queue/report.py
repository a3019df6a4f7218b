"""The figures as tables for people, and the ratios beside their goals."""

import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

from benchmarks.queue.contenders import Contender
from benchmarks.queue.measuring import Figures, Plan

BARE = {"bare": "bare ORM create()"}


class Goal(NamedTuple):
    """A ratio or an amount, and what it should be."""

    what: str
    value: Callable[["Medians"], float]
    bound: float
    is_least: bool = True
    form: str = "{:.2f}x"


class Medians:
    """The middle figure of each measure; one that was not measured says so by `KeyError`."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures.of

    def __call__(self, key: str, measure: str) -> float:
        return statistics.median(self.all(key, measure))

    def all(self, key: str, measure: str) -> list[float]:
        if (key, measure) not in self._figures:
            raise KeyError(key, measure)
        return self._figures[key, measure]


def show(figures: Figures, chosen: dict[str, Contender], plan: Plan) -> None:
    medians, names = Medians(figures), {key: contender.name for key, contender in chosen.items()}
    rate, milliseconds = "{:,.0f}", "{:,.1f}"
    for title, measures, form, named in (
        ("drain, jobs a second", {"one process": "rate_1", "two processes": "rate_2"}, rate, names),
        ("then settled after, ms", {"one process": "settled_1", "two processes": "settled_2"}, rate, names),
        ("submit, jobs a second", {"one by one": "one_by_one", "many": "many"}, rate, {**names, **BARE}),
        ("lone transaction, ms", {"p50": "p50", "p99": "p99", "longest": "longest"}, milliseconds, names),
        (
            "bursts of forty, ms",
            {"p50": "burst_p50", "p99": "burst_p99", "longest": "burst_longest"},
            milliseconds,
            names,
        ),
        (
            "sixteen clients, submits a second",
            {"processes": "processes", "without NOTIFY": "processes_silent"},
            rate,
            names,
        ),
        ("", {"threads": "threads", "without NOTIFY": "threads_silent"}, rate, names),
        ("memory of an idle worker, MiB", {"resident": "memory"}, rate, names),
        ("CPU of an idle worker, % of a core", {"idle": "idle"}, "{:,.2f}", names),
        ("submit in a transaction, ms", {"beyond its statement": "own"}, "{:,.3f}", names),
        (
            "claim and settle, µs per transaction",
            {"claim": "claim", "settle": "settle"},
            milliseconds,
            {f"history {size}": f"{size:,} rows of history" for size in plan.history},
        ),
    ):
        _table(title, measures, form, named, medians)
    print("\ngoals")
    for line in _goals(medians, plan):
        print(f"  {line}")


def _table(title: str, measures: dict[str, str], form: str, names: dict[str, str], medians: Medians) -> None:
    print(f"\n{title:36}" + "".join(f"{column:>28}" for column in measures))
    for key, name in names.items():
        cells = [_cell(medians, key, measure, form) for measure in measures.values()]
        if any(cells):
            print(f"  {name:34}" + "".join(f"{cell:>28}" for cell in cells))


def _cell(medians: Medians, key: str, measure: str, form: str) -> str:
    try:
        figures = medians.all(key, measure)
    except KeyError:
        return ""
    middle = form.format(statistics.median(figures))
    if len(figures) == 1:
        return middle
    return f"{middle} ({form.format(min(figures))} to {form.format(max(figures))})"


def _goals(medians: Medians, plan: Plan) -> Iterator[str]:
    for goal in (*_drains(), *_submits(), *_others(plan)):
        bound = f"{'at least' if goal.is_least else 'at most'} {goal.form.format(goal.bound)}"
        try:
            value = goal.value(medians)
        except KeyError:
            yield f"{goal.what:52} {'':>12}  {bound:22} not measured"
            continue
        is_reached = value >= goal.bound if goal.is_least else value <= goal.bound
        yield f"{goal.what:52} {goal.form.format(value):>12}  {bound:22} {'reached' if is_reached else 'missed'}"


def _ratio(one: tuple[str, str], other: tuple[str, str]) -> Callable[[Medians], float]:
    return lambda medians: medians(*one) / medians(*other)


def _drains() -> Iterator[Goal]:
    ours = ("limited", "rate_1")  # with the shipped policy
    for key, name, bound in (
        ("pgqueuer", "pgqueuer", 1.5),
        ("dramatiq", "dramatiq", 4),
        ("celery-rabbitmq", "Celery on RabbitMQ", 5),
        ("procrastinate", "procrastinate", 20),
        ("django-tasks", "django-tasks' database backend", 60),
        ("raw", "raw psycopg", 0.55),
    ):
        yield Goal(f"drain / {name}", _ratio(ours, (key, "rate_1")), bound)
    yield Goal("drain / without limits", _ratio(ours, ("ergon", "rate_1")), 0.95)
    yield Goal("drain, two processes / one", _ratio(("limited", "rate_2"), ours), 1.2)
    yield Goal("drain, one of 200 pipelines / a dedicated consumer", _ratio(("many", "rate_1"), ours), 0.9)
    tail = Goal("last outcome settled after", lambda medians: medians("limited", "settled_1"), 50, form="{:.0f} ms")
    yield tail._replace(is_least=False)
    yield Goal("drain beside 1,000 waiting retries / without", _ratio(("failing", "rate_1"), ours), 0.9)


def _submits() -> Iterator[Goal]:
    yield Goal("submit_many / pgqueuer's batch enqueue", _ratio(("ergon", "many"), ("pgqueuer", "many")), 2)
    yield Goal("submit one by one / bare ORM create()", _ratio(("ergon", "one_by_one"), ("bare", "one_by_one")), 1.5)
    own = Goal("submit in a transaction, beyond its statement", lambda medians: medians("ergon", "own"), 0.35)
    yield own._replace(is_least=False, form="{:.2f} ms")
    for crowd in ("processes", "threads"):
        silent = _ratio(("ergon", crowd), ("ergon", f"{crowd}_silent"))
        yield Goal(f"submit, sixteen {crowd} / without NOTIFY", silent, 0.85)


def _others(plan: Plan) -> Iterator[Goal]:
    small, large = plan.history[0], plan.history[-1]
    yield Goal("lone transaction, p50", lambda medians: medians("ergon", "p50"), 3, is_least=False, form="{:.1f} ms")
    yield Goal("lone transaction, p99", lambda medians: medians("ergon", "p99"), 15, is_least=False, form="{:.1f} ms")
    yield Goal("bursts, p99", lambda medians: medians("ergon", "burst_p99"), 50, is_least=False, form="{:.1f} ms")
    claims = _ratio((f"history {large}", "claim"), (f"history {small}", "claim"))
    yield Goal(f"claim, history of {large:,} / {small:,}", claims, 1.5, is_least=False)
    memory = Goal("memory of an idle worker", lambda medians: medians("ergon", "memory"), 90, form="{:.0f} MiB")
    yield memory._replace(is_least=False)
    many = Goal("CPU of an idle worker, 200 pipelines", lambda medians: medians("many", "idle"), 2, form="{:.2f} %")
    yield many._replace(is_least=False)

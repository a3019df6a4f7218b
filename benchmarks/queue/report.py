"""The figures as tables for people, and the ratios beside their goals."""

import statistics
from collections.abc import Iterator

from benchmarks import goals as goals_of
from benchmarks.goals import Figure, at_most, ratio
from benchmarks.queue.contenders import Contender
from benchmarks.queue.measuring import Figures, Plan

BARE = {"bare": "bare ORM create()"}


class Medians:
    """The middle figure of each measure; None of what was not measured."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures.of

    def __call__(self, key: str, measure: str) -> float | None:
        found = self.all(key, measure)
        return statistics.median(found) if found else None

    def ratio(self, one: tuple[str, str], other: tuple[str, str]) -> float | None:
        return ratio(self(*one), self(*other))

    def all(self, key: str, measure: str) -> list[float]:
        return self._figures.get((key, measure), [])


def show(figures: Figures, chosen: dict[str, Contender], plan: Plan) -> list[Figure]:
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
    reached = goals(medians, plan)
    goals_of.show(reached)
    return reached


def _table(title: str, measures: dict[str, str], form: str, names: dict[str, str], medians: Medians) -> None:
    print(f"\n{title:36}" + "".join(f"{column:>28}" for column in measures))
    for key, name in names.items():
        cells = [_cell(medians, key, measure, form) for measure in measures.values()]
        if any(cells):
            print(f"  {name:34}" + "".join(f"{cell:>28}" for cell in cells))


def _cell(medians: Medians, key: str, measure: str, form: str) -> str:
    figures = medians.all(key, measure)
    if not figures:
        return ""
    middle = form.format(statistics.median(figures))
    if len(figures) == 1:
        return middle
    return f"{middle} ({form.format(min(figures))} to {form.format(max(figures))})"


def goals(medians: Medians, plan: Plan) -> list[Figure]:
    return [*_drains(medians), *_submits(medians), *_others(medians, plan)]


def _drains(medians: Medians) -> Iterator[Figure]:
    ours = ("limited", "rate_1")
    rivals: tuple[tuple[str, str, float | None], ...] = (
        ("pgqueuer", "pgqueuer, batches of 100", 1.5),
        ("pgqueuer-asyncpg", "pgqueuer with asyncpg", None),
        ("dramatiq", "dramatiq", 4),
        ("celery-rabbitmq", "Celery on RabbitMQ", 5),
        ("procrastinate", "procrastinate", 20),
        ("django-tasks", "django-tasks' database backend", 60),
        ("raw", "raw psycopg, batches of 50", 0.55),
        ("ergon", "the same without limits", 0.95),
    )
    for key, name, goal in rivals:
        yield Figure(f"drain with the shipped policy / {name}", medians.ratio(ours, (key, "rate_1")), goal)
    yield Figure("drain, two processes / one", medians.ratio(("limited", "rate_2"), ours), 1.2)
    yield Figure("drain, one of 200 pipelines / a consumer of its own", medians.ratio(("many", "rate_1"), ours), 0.9)
    yield Figure("drain beside 1,000 retries that wait / without", medians.ratio(("failing", "rate_1"), ours), 0.9)
    yield at_most("drain, last outcome settled after", medians("limited", "settled_1"), 50, "{:.0f} ms")


def _submits(medians: Medians) -> Iterator[Figure]:
    many = medians.ratio(("ergon", "many"), ("pgqueuer", "many"))
    one_by_one = medians.ratio(("ergon", "one_by_one"), ("bare", "one_by_one"))
    yield Figure("`submit_many` / pgqueuer's batch enqueue", many, 2)
    yield Figure("`submit` one by one / bare ORM `create()`", one_by_one, 1.5)
    yield at_most("`submit` in a transaction, beyond its statement", medians("ergon", "own"), 0.35, "{:.2f} ms")
    for crowd in ("processes", "threads"):
        silent = medians.ratio(("ergon", crowd), ("ergon", f"{crowd}_silent"))
        yield Figure(f"`submit` by sixteen {crowd} / without NOTIFY", silent, 0.85)


def _others(medians: Medians, plan: Plan) -> Iterator[Figure]:
    small, large = plan.history[0], plan.history[-1]
    milliseconds = "{:.1f} ms"
    yield at_most("lone transaction, median", medians("ergon", "p50"), 3, milliseconds)
    yield at_most("lone transaction, 99 of 100", medians("ergon", "p99"), 15, milliseconds)
    yield at_most("bursts of forty, 99 of 100", medians("ergon", "burst_p99"), 50, milliseconds)
    claims = medians.ratio((f"history {large}", "claim"), (f"history {small}", "claim"))
    yield at_most(f"claim with {large:,} rows of history / with {small:,}", claims, 1.5)
    yield at_most("memory of an idle worker", medians("ergon", "memory"), 90, "{:.0f} MiB")
    yield at_most("idle worker of 200 pipelines", medians("many", "idle"), 2, "{:.2f} % of a core")

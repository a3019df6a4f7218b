"""Tables, and the goals beside what was reached."""

from collections.abc import Iterator

from benchmarks.facts.rounds import Figures

TABLES = {
    "at once": "append, 32 callers at once, facts a second",
    "in batches": "append in batches of a thousand, facts a second",
    "http": "HTTP, 16 connections, requests a second",
    "http, in batches": "HTTP, batches of a thousand, facts a second",
    "p50": "one append, ms: p50",
    "p99": "one append, ms: p99",
    "p50, alone": "one connection alone, ms: p50",
    "p99, alone": "one connection alone, ms: p99",
    "p50, SQLite": "SQLite, one connection alone, ms: p50",
    "p99, SQLite": "SQLite, one connection alone, ms: p99",
    "http, SQLite": "SQLite, 4 connections, requests a second",
    "one": "append one, µs",
    "one, anywhere": "append one whose names belong among those that are there, µs",
    "in a batch": "append in a batch of a thousand, µs each",
    "in a batch, anywhere": "append in a batch of a thousand whose names belong among those that are there, µs each",
    "fetch": "fetch of a thousand, ms",
}


def show(figures: Figures) -> None:
    for kind, title in TABLES.items():
        names = figures.names(kind)
        if names:
            print(f"\n{title}")
        for name in names:
            low, high = figures.spread(name, kind)
            form = ",.0f" if high > 100 else ".2f"  # noqa: PLR2004 (many or few)
            middle = figures.median(name, kind)
            print(f"  {name:36} {middle:>12{form}}  ({low:{form}} to {high:{form}})")
    print("\ngoals")
    for name, reached, goal, form, is_least in goals(figures):
        verdict, figure = "not measured", ""
        if reached is not None:
            verdict = "reached" if (reached >= goal if is_least else reached <= goal) else "missed"
            figure = form.format(reached)
        print(f"  {name:52} {figure:>12}  {'at least' if is_least else 'at most'} {form.format(goal):10} {verdict}")


def goals(figures: Figures) -> Iterator[tuple[str, float | None, float, str, bool]]:
    def ratio(name: str, over: str, kind: str) -> float | None:
        figure, base = figures.median(name, kind), figures.median(over, kind)
        return figure / base if figure and base else None

    synced = ratio("Ergon", "JetStream, sync for every write", "at once")
    yield "32 callers / JetStream with a sync for every write", synced, 1.0, "{:.2f}x", True
    yield "32 callers / bare batching writer", ratio("Ergon", "bare batching writer", "at once"), 0.6, "{:.2f}x", True
    yield "in batches, facts a second", figures.median("Ergon, in batches", "in batches"), 30_000, "{:,.0f}", True
    yield "HTTP / bare APIView", ratio("Ergon over HTTP", "bare APIView", "http"), 1.0, "{:.2f}x", True
    yield "HTTP / plain Django view", ratio("Ergon over HTTP", "plain Django view", "http"), 1.0, "{:.2f}x", True
    batches = figures.median("Ergon over HTTP, in batches", "http, in batches")
    yield "HTTP in batches, facts a second", batches, 15_000, "{:,.0f}", True
    for kind, goal in {"p50, alone": 3, "p99, alone": 10}.items():
        figure = figures.median("Ergon over HTTP, alone", kind)
        yield f"one connection, {kind.partition(',')[0]}", figure, goal, "{:.1f} ms", False
    kept = ratio("SQLite, connection kept", "SQLite, connection for each request", "p50, SQLite")
    yield "SQLite p50, connection kept / for each request", kept, 1.0, "{:.2f}x", False
    if sizes := figures.names("one"):
        few, many = sizes[0], sizes[-1]
        yield f"append, {many} / {few}", ratio(many, few, "one"), 1.5, "{:.2f}x", False
        yield f"append in batches, {many} / {few}", ratio(many, few, "in a batch"), 1.5, "{:.2f}x", False
        yield "fetch of a thousand", figures.median(many, "fetch"), 50, "{:.1f} ms", False

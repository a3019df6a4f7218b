"""Tables, and the goals beside what was reached."""

from collections.abc import Iterator

from benchmarks import goals as goals_of
from benchmarks.facts.rounds import Figures
from benchmarks.goals import Figure, at_most, ratio

A_SECOND = "{:,.0f} a second"

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


def show(figures: Figures) -> list[Figure]:
    for kind, title in TABLES.items():
        names = figures.names(kind)
        if names:
            print(f"\n{title}")
        for name in names:
            low, high = figures.spread(name, kind)
            form = ",.0f" if high > 100 else ".2f"  # noqa: PLR2004 (many or few)
            middle = figures.median(name, kind)
            print(f"  {name:36} {middle:>12{form}}  ({low:{form}} to {high:{form}})")
    reached = goals(figures)
    goals_of.show(reached)
    return reached


def goals(figures: Figures) -> list[Figure]:
    return [*_at_once(figures), *_over_http(figures), *_growth(figures)]


def _at_once(figures: Figures) -> Iterator[Figure]:
    synced = _ratio(figures, "at once", "Ergon", "JetStream, sync for every write")
    bare = _ratio(figures, "at once", "Ergon", "bare batching writer")
    in_batches = figures.median("Ergon, in batches", "in batches")
    yield Figure("append, 32 callers / NATS JetStream with a sync for every write", synced, 1.0)
    yield Figure("append, 32 callers / a bare writer that batches", bare, 0.6)
    yield Figure("append in batches of a thousand", in_batches, 30_000, form=A_SECOND)


def _over_http(figures: Figures) -> Iterator[Figure]:
    for view in ("plain Django view", "bare APIView"):
        beside = _ratio(figures, "http", "Ergon over HTTP", view)
        yield Figure(f"HTTP, 16 connections / a {view} that inserts one row", beside, 1.0)
    batches = figures.median("Ergon over HTTP, in batches", "http, in batches")
    yield Figure("HTTP in batches of a thousand", batches, 15_000, form=A_SECOND)
    for kind, words, goal in (("p50, alone", "median", 3), ("p99, alone", "99 of 100", 10)):
        figure = figures.median("Ergon over HTTP, alone", kind)
        yield at_most(f"HTTP, one connection, {words}", figure, goal, "{:.1f} ms")
    kept = _ratio(figures, "p50, SQLite", "SQLite, connection kept", "SQLite, connection for each request")
    yield at_most("HTTP on SQLite, median, connection kept / one for each request", kept, 1.0)


def _growth(figures: Figures) -> Iterator[Figure]:
    few, *_, many = figures.names("one") or ["", ""]
    for what, kind in (("append", "one"), ("append in batches", "in a batch")):
        yield at_most(f"{what} to the most facts / to the fewest", _ratio(figures, kind, many, few), 1.5)
    yield at_most("fetch of a thousand from the most facts", figures.median(many, "fetch"), 50, "{:.1f} ms")


def _ratio(figures: Figures, kind: str, name: str, over: str) -> float | None:
    return ratio(figures.median(name, kind), figures.median(over, kind))

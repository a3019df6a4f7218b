"""How the search text of a list is understood."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from ergon_site.access.core.search_terms import PAYLOAD, Search, moment, parse

NAMES = ("state", "pipeline", "error", "after", PAYLOAD)
NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)


def understood(text: str) -> tuple[dict[str, str], tuple[str, ...]]:
    search = parse(text, NAMES)
    return search.filters, search.words


@pytest.mark.parametrize(
    ("text", "filters", "words"),
    [
        ("", {}, ()),
        ("   ", {}, ()),
        ("t-12", {}, ("t-12",)),
        ("state:failed", {"state": "failed"}, ()),
        ("State:failed", {"state": "failed"}, ()),
        (
            "pipeline:invoices state:failed error:timeout payload.order.id:42 after:2h",
            {"pipeline": "invoices", "state": "failed", "error": "timeout", "payload.order.id": "42", "after": "2h"},
            (),
        ),
        ('error:"connection refused" late', {"error": "connection refused"}, ("late",)),
        ('"connection refused" late', {}, ("connection refused", "late")),
        ('"never closed', {}, ('"never', "closed")),
        ('a"b"c', {}, ('a"b"c',)),
        ('error:"a"b', {"error": '"a"b'}, ()),
        # Ids may contain colons, and a time is no filter.
        ("urn:order:42", {}, ("urn:order:42",)),
        ("12:30", {}, ("12:30",)),
        (":x", {}, (":x",)),
        ("pipeline:urn:a:b", {"pipeline": "urn:a:b"}, ()),
        ("state:", {"state": ""}, ()),
        ("state: failed", {"state": ""}, ("failed",)),
        ("state:failed state:pending", {"state": "pending"}, ()),
        # What payload searches always understood: blanks in values and paths, capitals, quotes as in JSON.
        ("payload.name:Ada Lovelace", {"payload.name": "Ada Lovelace"}, ()),
        ("payload.name:Ada  Lovelace state:failed", {"payload.name": "Ada  Lovelace", "state": "failed"}, ()),
        ("payload.Order Id:42", {"payload.Order Id": "42"}, ()),
        ("payload.id: 42", {"payload.id": "42"}, ()),
        ('payload.id:"42" late', {"payload.id": '"42"'}, ("late",)),
        ("payload.a:1 payload.b:2", {"payload.a": "1", "payload.b": "2"}, ()),
        ("payload.at:12:30", {"payload.at": "12:30"}, ()),
        ("payload.a state:failed", {"state": "failed"}, ("payload.a",)),
        ("payload.:1", {}, ("payload.:1",)),
        ("payload.a:x urn:y", {"payload.a": "x urn:y"}, ()),
    ],
)
def test_a_search_is_filters_and_words(text: str, filters: dict[str, str], words: tuple[str, ...]) -> None:
    assert understood(text) == (filters, words)


def test_a_list_without_payloads_takes_paths_for_words() -> None:
    assert parse("payload.a:1 x", ["state"]).words == ("payload.a:1", "x")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("state:failed late", ""),
        ('"urn:x"', ""),
        ("error:", "error: needs a value."),
        ("state:a state:b", "state is there more than once; the last one counts."),
        (
            "stat:failed",
            (
                "There is no filter stat: here, so it was searched as text. Did you mean state:? "
                "Filters: state, pipeline, error, after, payload.path."
            ),
        ),
        (
            "urn:order:42",
            (
                "There is no filter urn: here, so it was searched as text. "
                "Filters: state, pipeline, error, after, payload.path."
            ),
        ),
    ],
)
def test_what_is_not_understood_is_said_in_words(text: str, note: str) -> None:
    assert parse(text, NAMES).note == note


def test_a_list_without_filters_says_so() -> None:
    assert parse("a:b", []).note.endswith("Filters: none.")


def test_a_part_can_be_taken_out() -> None:
    search = parse('late state:failed  error:"no route"', NAMES)
    assert [search.without(term) for term in search.terms] == [
        'state:failed error:"no route"',
        'late error:"no route"',
        "late state:failed",
    ]
    assert search.text == "late"


@given(st.text(max_size=80))
def test_every_text_is_understood_somehow_and_stays_so_without_one_part(text: str) -> None:
    search = parse(text, NAMES)
    assert isinstance(search.note, str)
    if len({term.name for term in search.terms}) == len(search.terms):
        for term in search.terms:
            left = parse(search.without(term), NAMES)
            assert len(left.terms) <= len(search.terms)


@given(st.lists(st.tuples(st.sampled_from(NAMES[:-1]), st.text(st.characters(codec="ascii"), min_size=1)), max_size=5))
def test_values_in_quotes_arrive_as_they_are(pairs: list[tuple[str, str]]) -> None:
    wanted = {name: value.replace('"', "").replace("\n", " ") for name, value in pairs}
    text = " ".join(f'{name}:"{value}"' for name, value in wanted.items())
    assert parse(text, NAMES) == Search(parse(text, NAMES).terms, NAMES)
    assert parse(text, NAMES).filters == wanted


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("30m", NOW - timedelta(minutes=30)),
        ("2H", NOW - timedelta(hours=2)),
        ("90s", NOW - timedelta(seconds=90)),
        ("7d", NOW - timedelta(days=7)),
        ("9999w", NOW - timedelta(weeks=9999)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_a_time_is_an_age_or_a_date(text: str, meant: datetime) -> None:
    assert moment(text, NOW) == meant


@pytest.mark.parametrize("text", ["", "2", "h", "99999d", "yesterday", "0001-01-01T00:00+14:00", "2026-13-01", "\x00"])
def test_another_time_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="a time looks like 30m, 2h, 7d"):
        moment(text, NOW)

"""What a saved view keeps, and the names it may have."""

import pytest

from ergon_site.access.core.saved_views import LONGEST_NAME, LONGEST_QUERY, check_name, check_query, kept


@pytest.mark.parametrize(
    ("query", "stored"),
    [
        ("", ""),
        ("at=abc&e=1&p=2", ""),
        ("state=failed&at=abc&pipeline=orders", "pipeline=orders&state=failed"),
        ("q=state%3Afailed+%22a+b%22", "q=state%3Afailed+%22a+b%22"),
        ("state=", ""),
        ("&".join(["a=1"] * 101), ""),
    ],
)
def test_a_view_keeps_filters_and_search_in_one_order(query: str, stored: str) -> None:
    assert kept(query) == stored
    assert kept(stored) == stored


@pytest.mark.parametrize("name", ["a", "Failed today", "ü" * LONGEST_NAME])
def test_a_name_is_short_and_printable(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "\x00", "\u202e", "a" * (LONGEST_NAME + 1)])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="a name has 1 to 60"):
        check_name(name)


def test_a_view_of_everything_or_of_too_much_is_refused() -> None:
    check_query("state=failed")
    with pytest.raises(ValueError, match="needs a filter"):
        check_query("")
    with pytest.raises(ValueError, match="longer than 2,000"):
        check_query("a" * (LONGEST_QUERY + 1))

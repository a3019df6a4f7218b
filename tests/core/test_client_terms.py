"""What can be said of an API client."""

from datetime import timedelta

import pytest

from ergon_site.access.core import terms
from ergon_site.access.core.terms import UnusableTermError


@pytest.mark.parametrize("name", ["erp", "x" * 100, "press line 3"])
def test_a_name_is_a_short_text(name: str) -> None:
    terms.check_name(name)


@pytest.mark.parametrize("name", ["", " ", " erp", "erp ", "x" * 101, "a\nb"])
def test_a_name_that_nobody_could_read_or_keep_is_refused(name: str) -> None:
    with pytest.raises(UnusableTermError, match="A client's name has 1 to 100 printable characters"):
        terms.check_name(name)


def test_every_entry_of_a_grant_is_a_short_text() -> None:
    terms.check_items("target_zones", ["Enterprise", "x" * 256])
    with pytest.raises(UnusableTermError, match="An entry of target zones has 1 to 256"):
        terms.check_items("target_zones", ["Enterprise", ""])


@pytest.mark.parametrize("rate", [None, 0.5, 1e9])
def test_a_rate_is_a_number_of_requests(rate: float | None) -> None:
    terms.check_rate(rate)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), 1e10])
def test_a_rate_that_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(UnusableTermError, match="The rate must be a number above 0"):
        terms.check_rate(rate)


def test_a_time_ends_within_a_lifetime_of_anything() -> None:
    terms.check_time("lifetime", None)
    terms.check_time("lifetime", timedelta(days=36_500))
    for time in (timedelta(days=36_501), timedelta(days=-1)):
        with pytest.raises(UnusableTermError, match="The lifetime must be at most 36,500 days"):
            terms.check_time("lifetime", time)

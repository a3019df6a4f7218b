"""Rules that open a breaker by rates: what they may say, and what is told of them."""

import pytest

from engines.core.errors import PolicyError
from providers.core.breaker import OpeningRules
from providers.core.events import EventKind, Marks
from providers.core.exchange import Who
from providers.core.policy import ProviderPolicy

WHO = Who("t", "rank", "snapshot")


def test_a_rule_is_used_if_it_has_a_rate() -> None:
    assert not OpeningRules().are_used
    assert OpeningRules(failure_rate=0.5).are_used
    assert OpeningRules(slow_rate=1.0).are_used
    assert OpeningRules(calls=50).width == 5.0
    assert OpeningRules(seconds=60.0).width == 6.0


@pytest.mark.parametrize("wrong", [{"failure_rate": 0.0}, {"slow_rate": 1.5}, {"calls": 10, "minimum_calls": 11}])
def test_what_could_never_open_it_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PolicyError, match=list(wrong)[-1]):
        OpeningRules(**wrong)  # type: ignore[arg-type]
    assert OpeningRules(calls=10, minimum_calls=11, seconds=30.0)


def test_rules_are_stored_where_they_say_something() -> None:
    assert "opening" not in ProviderPolicy().to_stored()
    kept = ProviderPolicy(opening=OpeningRules(failure_rate=0.5)).to_stored()
    assert ProviderPolicy.from_stored(kept).opening.failure_rate == 0.5


def test_a_rate_is_why_a_breaker_opened_or_would_have() -> None:
    opened = Marks(1.0, 2, "open", "closed", "", 31.0, None, "60 % of 20 calls failed")
    (event,) = opened.notices(WHO, "timeout")
    assert (event.kind, event.to_state, event.why) == (EventKind.BREAKER, "open", "60 % of 20 calls failed")
    (probe,) = opened._replace(state="open", turned_from="half_open").notices(WHO, "timeout")
    assert probe.why == "timeout"
    (shadow,) = opened._replace(turned_from="", would_open="60 % of 20 calls failed").notices(WHO, "timeout")
    assert (shadow.kind, shadow.from_state, shadow.to_state) == (EventKind.SHADOW, "closed", "would open")

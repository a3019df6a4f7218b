"""`manage.py quota`, `breaker` and `provider_cache`, as operators type them."""

from pathlib import Path

import pytest
from django.core.management import CommandError

from ergon_site.access.models import AuditEntry
from providers import ProviderConnectionError, RetryPolicy
from providers.models import Gate, ProviderPolicyRow
from tests.commands import ask, run
from tests.providers.scripted_providers import TENANT, WHO, scripted

pytestmark = pytest.mark.django_db

DOWN = ProviderConnectionError("no route")


def trip() -> list[str | None]:
    provider = scripted(DOWN, retry_policy=RetryPolicy(max_attempts=1))
    return [provider.ask().reason_code for _ in range(5)]


def test_a_quota_is_set_shown_obeyed_and_dropped() -> None:
    told = ask("quota", "set", *WHO, "--limit", "2", "--window", "86400")
    assert (told["limit_count"], told["used_count"], told["remaining_count"]) == (2, 0, 2)
    provider = scripted({})
    assert [provider.ask().reason_code for _ in range(3)] == [None, None, "quota_exhausted"]
    for names in ((), WHO[:1], WHO[:2], WHO):
        (shown,) = ask("quota", "show", *names)
        assert (shown["tenant_id"], shown["used_count"], shown["remaining_count"]) == (TENANT, 2, 0)
        assert shown["window_seconds"] == 86400
    assert "rank_snapshot" in run("quota", "show")
    assert ask("quota", "show", "00000000-0000-4000-8000-000000000000") == []
    assert "quota removed" in run("quota", "drop", *WHO, "--reason", "a gift")
    assert ask("quota", "show", *WHO) == []
    assert provider.ask().ok
    actions = AuditEntry.objects.order_by("pk").values_list("action", "reason")
    assert list(actions) == [("quota.set", ""), ("quota.drop", "a gift")]
    assert all(entry.actor.startswith("command:") for entry in AuditEntry.objects.all())


def test_a_mistyped_capability_gets_no_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text("{}")
    typed = ("provider_policy", "set", "rank", "rank_snapshto", "--file", str(file), "--reason", "slower")
    with pytest.raises(CommandError, match="no provider 'rank' with the capability 'rank_snapshto' is known here"):
        run(*typed)
    assert not ProviderPolicyRow.objects.exists()
    assert "v1 is active" in run(*typed, "--create")


def test_a_breaker_is_shown_as_it_amounts_to() -> None:
    assert trip() == ["connection_error"] * 5
    told = ask("breaker", "show", *WHO)
    assert (told["breaker_state"], told["consecutive_failures"]) == ("open", 5)
    assert (told["success_rate_1h"], told["last_error_code"]) == (0.0, "connection_error")
    assert told["open_until"] is not None
    Gate.objects.update(open_until=1.0)
    assert ask("breaker", "show", *WHO)["breaker_state"] == "half_open"
    assert [one["breaker_state"] for one in ask("breaker", "show", TENANT)] == ["half_open"]
    assert "half_open" in run("breaker", "show")


def test_kept_answers_are_shown_and_dropped() -> None:
    provider = scripted({"rank": 1}, cache_for=3600.0)
    for keyword in ("tea", "coffee", "tea"):
        provider.ask({"keyword": keyword})
    assert ask("breaker", "show", *WHO)["cache_hits_1h"] == 1
    [shown] = ask("provider_cache", "show")
    assert (shown["tenant_id"], shown["answers"], shown["oldest"] < shown["newest"]) == (TENANT, 2, True)
    assert "rank_snapshot" in run("provider_cache", "show")
    with pytest.raises(CommandError, match=r"this deletes 2 cached answers of .*: repeat it with --yes"):
        run("provider_cache", "drop", *WHO, "--reason", "they were wrong")
    assert "2 cached answers dropped" in run("provider_cache", "drop", *WHO, "--yes", "--reason", "they were wrong")
    assert ask("provider_cache", "drop", *WHO, "--reason", "to be sure")["dropped"] == 0
    assert ask("provider_cache", "show") == []
    entries = AuditEntry.objects.filter(action="cache.drop").order_by("pk")
    assert [entry.reason for entry in entries] == ["they were wrong", "to be sure"]


def test_a_breaker_is_forced_and_reset_with_a_reason() -> None:
    told = ask("breaker", "force-open", *WHO, "--reason", "they move", "--for", "3600")
    assert (told["breaker_state"], told["override"], told["override_reason"]) == ("open", "open", "they move")
    assert told["override_until"] is not None
    assert scripted({}).ask().reason_code == "circuit_open"
    trip()
    told = ask("breaker", "force-close", *WHO, "--reason", "they are back", "--until-reset")
    assert (told["breaker_state"], told["override"], told["override_until"]) == ("closed", "closed", None)
    assert scripted({}).ask().ok
    told = ask("breaker", "reset", *WHO, "--reason", "done")
    assert (told["breaker_state"], told["override"]) == ("closed", None)
    assert run("breaker", "force-open", *WHO, "--reason", "x").endswith("forced open for 1800 s\n")
    words = run("breaker", "force-open", *WHO, "--reason", "again", "--for", "60")
    assert words == "rank rank_snapshot of 7b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c11: forced open for 60 s\n"
    assert set(AuditEntry.objects.values_list("action", flat=True)) == {
        *("breaker.force_open", "breaker.force_closed", "breaker.reset")
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("quota", "set", *WHO, "--window", "60"), "--limit"),
        (("quota", "set", *WHO, "--limit", "-1", "--window", "60"), "whole number from 0"),
        (("quota", "set", *WHO, "--limit", "1", "--window", "0"), "above 0"),
        (("quota", "set", *WHO, "--limit", "1", "--window", "1e12"), "at most 3,660 days"),
        (("quota", "set", TENANT, "x" * 101, "rank_snapshot", "--limit", "1", "--window", "60"), "1 to 100"),
        (("quota", "set", "nobody", "rank", "rank_snapshot", "--limit", "1", "--window", "60"), "UUID of a tenant"),
        (("breaker", "reset", "x" * 36, "rank", "rank_snapshot", "--reason", "x"), "UUID of a tenant"),
        (("breaker", "reset", *WHO), "--reason"),
        (("breaker", "force-open", *WHO, "--reason", "x", "--for", "soon"), "number of seconds"),
        (("breaker", "force-open", *WHO, "--reason", "x", "--for", "1e300"), "at most 3,660 days"),
        (("breaker", "show", *WHO), "is unknown: it was never called"),
        (("quota", "show", *WHO), "is unknown: it was never called"),
        (("breaker",), "VERB"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        run(*arguments)
    assert not Gate.objects.exists()


def test_a_typo_makes_no_capability() -> None:
    typed = (TENANT, "rnak", "rank_snapshot")
    for command in (
        ("quota", "set", *typed, "--limit", "1", "--window", "60"),
        ("quota", "drop", *typed),
        ("breaker", "reset", *typed, "--reason", "x"),
        ("breaker", "force-open", *typed, "--reason", "x"),
    ):
        with pytest.raises(CommandError, match=r"no provider 'rnak' with the capability 'rank_snapshot' .* --create"):
            run(*command)
    assert not Gate.objects.exists()
    assert "1 calls in every 60 s" in run("quota", "set", *typed, "--limit", "1", "--window", "60", "--create")
    assert "2 calls in every 60 s" in run("quota", "set", *typed, "--limit", "2", "--window", "60")

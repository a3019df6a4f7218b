"""Every call is settled: broken off, cancelled, over a dropped connection, and while the database is away."""

import asyncio
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import OperationalError, connection
from django.test import TransactionTestCase

from ergon_site.dashboard import providers
from providers import RetryPolicy, active_policy, calls
from providers.calls import journal
from providers.conf import settings
from providers.core.breaker import Permit, Verdict
from providers.core.exchange import CallRequest, Outcome, ProviderExecutionContext, ProviderExecutionResult
from providers.core.gate import Admission, Decision
from providers.core.steps import Settle
from providers.database import admitting
from providers.models import Gate, IdempotencyClaim, ProviderExecutionMetric
from tests import database
from tests.processes import LIMIT, database_url
from tests.providers.celery_tasks import lose_database
from tests.providers.scripted_providers import TENANT, WHO, Scripted, context, scripted

pytestmark = pytest.mark.django_db(transaction=True)


def attempts() -> list[tuple[str, str | None]]:
    return list(ProviderExecutionMetric.objects.order_by("id").values_list("outcome", "reason_code"))


def open_and_cool() -> None:
    """The breaker has opened, and the cooldown is over: the next call is a probe."""
    admitting.make_gate(WHO)
    Gate.objects.update(state="open", open_until=1.0)


@contextmanager
def without_the_database() -> Iterator[None]:
    """It is away from here to the end of the block, however long that takes."""
    restore = lose_database(LIMIT)
    try:
        yield
    finally:
        restore()


@contextmanager
def without_changes() -> Iterator[None]:
    """The database is read-only for all that connect from here to the end of the block, as after a failover."""
    with psycopg.connect(database_url(), autocommit=True) as other:
        name = other.info.dbname
        other.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        connection.close()
        try:
            yield
        finally:
            other.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            connection.close()


def won_and_not_kept(key: str | None = None, **attributes: Any) -> ProviderExecutionResult:
    """A success that the database could not take, which goes away during the call and is back after it."""

    def win(_: ProviderExecutionContext) -> dict[str, Any]:
        outage.enter_context(without_the_database())
        return {"rank": 1}

    for limit in (0.5, 5.0):  # the second for a machine that stood still
        with ExitStack() as outage:
            result = scripted(win, **attributes).ask(idempotency_key=key, deadline=time.monotonic() + limit)
        if result.ok:
            break
        database.clean(TransactionTestCase())  # of the call that came too late
    return result


class Awaited(Scripted):
    """Says that it was called, and waits until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.is_called = asyncio.Event()

    async def _aexecute_impl(self, **_: Any) -> dict[str, Any]:
        self.is_called.set()
        await asyncio.sleep(60)
        return {}


async def asked_of(provider: Scripted, **about: Any) -> ProviderExecutionResult:
    return await provider.aexecute(tenant_id=TENANT, operation="snapshot", payload={}, context=context(**about))


def test_what_breaks_a_call_off_leaves_nothing_open() -> None:
    provider = scripted(SystemExit(), {"rank": 1})
    open_and_cool()
    with pytest.raises(SystemExit):
        provider.ask(idempotency_key="order-1")
    assert attempts() == [("failed", "cancelled")]
    gate = Gate.objects.get()
    assert (gate.state, gate.probes) == ("half_open", {})
    assert provider.ask(idempotency_key="order-1").ok


def test_a_call_that_is_cancelled_leaves_nothing_open() -> None:
    provider = Awaited()
    open_and_cool()

    async def cancel() -> None:
        call = asyncio.create_task(asked_of(provider, idempotency_key="order-1"))
        await provider.is_called.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    async_to_sync(cancel)()
    assert attempts() == [("failed", "cancelled")]
    gate = Gate.objects.get()
    assert (gate.state, gate.probes) == ("half_open", {})
    assert IdempotencyClaim.objects.get().state == "failed"
    assert scripted({"rank": 1}).ask(idempotency_key="order-1").ok


def test_a_call_that_is_cancelled_between_attempts_gives_back_the_quota_of_a_request_that_never_left() -> None:
    calls.set_quota(WHO, limit=10, window=86_400, by="ada")
    waits = RetryPolicy(max_attempts=3, base_delay_seconds=3600, max_delay_seconds=3600)

    async def cancel() -> None:
        call = asyncio.create_task(asked_of(scripted(ConnectionRefusedError(), retry_policy=waits)))
        retries = ProviderExecutionMetric.objects.filter(outcome="retry")
        while not await sync_to_async(retries.exists)():  # noqa: ASYNC110 (a row tells it)
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    async_to_sync(cancel)()
    assert Gate.objects.get().used == 0
    assert attempts() == [("retry", "connection_error"), ("failed", "cancelled")]


def test_a_call_that_is_cancelled_while_the_database_is_asked_leaves_nothing_open() -> None:
    """Cancelled at a moment by chance, over and over: each call is settled, or was never let through."""

    async def cancel(after: float) -> None:
        call = asyncio.create_task(asked_of(scripted({"rank": 1}), idempotency_key=f"order-{after}"))
        await asyncio.sleep(after)
        call.cancel()
        await asyncio.wait([call])

    admitting.make_gate(WHO)
    for step in range(12):
        async_to_sync(cancel)(step * 0.002)
    assert set(IdempotencyClaim.objects.values_list("state", flat=True)) <= {"failed", "succeeded"}
    gate = Gate.objects.get()
    assert gate.admissions == gate.settlements


@pytest.mark.postgresql
@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_connection_that_is_dropped_in_mid_call_loses_no_settlement(ends: str) -> None:
    def drop(_: ProviderExecutionContext) -> dict[str, Any]:
        with psycopg.connect(database_url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [connection.connection.info.backend_pid])
        if ends == "badly":
            raise TimeoutError
        return {"rank": 1}

    provider = scripted(drop, {"rank": 2}, idempotency_lease=60.0)
    result = provider.ask(idempotency_key="order-1")
    expected = [("success", None)] if ends == "well" else [("retry", "timeout"), ("success", None)]
    assert (result.ok, result.is_kept, attempts()) == (True, True, expected)
    assert IdempotencyClaim.objects.get().state == "succeeded"
    gate = Gate.objects.get()
    assert gate.admissions == gate.settlements
    assert calls.waiting() == 0


def test_what_may_have_been_settled_is_settled_once() -> None:
    """The answer of the database was lost, not the settlement."""
    provider = scripted({"rank": 1})
    seen = []
    verb = calls.settle

    def settle_and_lose(request: Any, step: Any) -> Any:
        seen.append((request, step))
        return verb(request, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "settle", settle_and_lose)
        provider.ask(idempotency_key="order-1")
    [(request, step)] = seen
    before = Gate.objects.values().get()
    assert calls.settle(request, step._replace(is_repeat=True)) == "ended"
    assert Gate.objects.values().get() == before
    assert attempts() == [("success", None)]


@pytest.mark.postgresql
def test_a_database_that_takes_no_changes_counts_as_away() -> None:
    closed, local = scripted({"rank": 1}), scripted({"rank": 1}, on_store_failure="local")
    with without_changes():
        refused, made = closed.ask(idempotency_key="order-1"), local.ask(idempotency_key="order-2")
    assert (refused.reason_code, closed.calls) == ("dependency_unavailable", [])
    assert (made.ok, made.is_kept, calls.waiting()) == (True, False, 1)
    assert closed.ask(idempotency_key="order-1").ok
    assert (calls.waiting(), attempts()) == (0, [("success", None)] * 2)


@pytest.mark.postgresql
def test_a_success_is_kept_for_a_database_that_has_begun_to_take_no_changes() -> None:
    def win(_: ProviderExecutionContext) -> dict[str, Any]:
        failover.enter_context(without_changes())
        return {"rank": 1}

    with ExitStack() as failover:
        result = scripted(win).ask(idempotency_key="order-1", deadline=time.monotonic() + LIMIT)
        assert calls.waiting() == 1
        assert journal.replay() == 0
    assert (result.ok, result.is_kept) == (True, False)
    assert (journal.replay(), attempts()) == (1, [("success", None)])


@pytest.mark.postgresql
def test_a_connection_to_a_server_that_takes_no_changes_any_more_is_made_anew() -> None:
    provider = scripted({"rank": 1})
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
    assert provider.ask().ok


@pytest.mark.postgresql
def test_an_outcome_that_the_database_could_not_take_is_settled_by_the_next_call() -> None:
    result = won_and_not_kept("order-1")
    assert (result.ok, result.payload, result.is_kept) == (True, {"rank": 1}, False)
    assert stat.S_IMODE(settings().journal.stat().st_mode) == 0o600
    assert calls.waiting() == 1
    again = scripted({"rank": 2}).ask(idempotency_key="order-2")
    assert again.ok
    assert calls.waiting() == 0
    assert scripted({"rank": 3}).ask(idempotency_key="order-1").payload == {"rank": 1}
    assert sorted(attempts()) == [("success", None), ("success", None)]
    gate = Gate.objects.get()
    assert gate.admissions == gate.settlements


@pytest.mark.postgresql
@pytest.mark.parametrize("is_known", [True, False], ids=["this process", "another process of the host"])
def test_a_success_that_waits_in_the_journal_is_not_called_for_again_once_its_claim_has_lapsed(
    is_known: bool,  # noqa: FBT001
) -> None:
    assert not won_and_not_kept("order-1").is_kept
    IdempotencyClaim.objects.update(lease_until=0.0)
    journal.known.has_outcomes = is_known
    again = scripted({"rank": 2})
    result = again.ask(idempotency_key="order-1")
    assert (result.payload, result.replayed, again.calls) == ({"rank": 1}, True, [])
    assert (calls.waiting(), attempts()) == (0, [("success", None)])


def test_a_journal_that_another_process_writes_to_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ticket, settlement = outcome()
    assert not journal.is_waiting_for(ticket)
    journal.spool(ticket, settlement)
    assert journal.is_waiting_for(ticket)
    admitting.make_gate(WHO)
    journal.replay()
    later = settings().journal.stat().st_mtime + 60
    monkeypatch.setattr(time, "time", lambda: later)
    assert not journal.is_waiting_for(ticket)
    assert journal.known.empty_as is not None  # from now on a look at the file's time is enough
    assert not journal.is_waiting_for(ticket)
    journal.spool(ticket, settlement)
    assert journal.is_waiting_for(ticket)


def test_a_journal_that_cannot_be_read_or_written_disturbs_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    journal.spool(*outcome())
    with monkeypatch.context() as patch:
        patch.setattr(calls, "is_waiting_for", lambda _: True)
        settings().journal.write_bytes(b"not a database" * 1000)
        assert scripted({"rank": 1}).ask(idempotency_key="order-1").ok
    assert scripted({"rank": 2}).ask(idempotency_key="order-2").ok
    settings().journal.unlink()


@pytest.mark.postgresql
def test_a_call_without_the_database_gets_its_own_answer_again_from_the_journal() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, on_store_failure="local")
    provider.ask()
    with without_the_database():
        first = provider.ask(idempotency_key="order-1")
        second = provider.ask(idempotency_key="order-1")
    assert (first.payload, first.replayed, second.payload, second.replayed) == ({"rank": 2}, False, {"rank": 2}, True)
    assert journal.replay() == 1
    assert IdempotencyClaim.objects.get().state == "succeeded"


def test_a_key_that_could_not_be_claimed_keeps_the_answer_that_came_with_the_database_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(*_: Any, **__: Any) -> Any:
        raise OperationalError

    provider = scripted({"rank": 1}, {"rank": 2}, on_store_failure="local")
    with monkeypatch.context() as patch:
        # The database is away for this one statement, which no outage of a test's could meet.
        patch.setattr(calls, "claim", lose)
        assert provider.ask(idempotency_key="order-1").payload == {"rank": 1}
    again = provider.ask(idempotency_key="order-1")
    assert (again.payload, again.replayed, len(provider.calls)) == ({"rank": 1}, True, 1)


@pytest.mark.postgresql
def test_the_first_call_of_a_capability_can_be_one_that_was_made_without_the_database() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, on_store_failure="local")
    with without_the_database():
        assert provider.ask(idempotency_key="order-1").payload == {"rank": 1}
    again = provider.ask(idempotency_key="order-1")
    assert (again.payload, again.replayed, calls.waiting(), attempts()) == ({"rank": 1}, True, 0, [("success", None)])


@pytest.mark.postgresql
def test_a_call_that_was_made_without_the_database_is_not_made_again_by_who_finds_its_connection_closed() -> None:
    provider = scripted({"rank": 1}, {"rank": 2}, on_store_failure="local")
    with without_the_database():
        provider.ask(idempotency_key="order-1")
    active_policy.forget_all()
    active_policy.governing(provider)  # so that the claim finds out first
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT pg_terminate_backend(%s, 10000)", [connection.connection.info.backend_pid])
    again = provider.ask(idempotency_key="order-1")
    assert (again.payload, again.replayed, attempts()) == ({"rank": 1}, True, [("success", None)])


def test_an_outcome_whose_gate_is_not_there_makes_it() -> None:
    journal.spool(*outcome())
    assert journal.replay() == 1
    assert Gate.objects.filter(**WHO._asdict()).exists()


def outcome() -> tuple[CallRequest, Settle]:
    """A success, as the rules would settle it."""
    ticket = scripted({})._ticket(TENANT, None, "snapshot", {}, context())
    admission = Admission(Decision.ADMITTED, Permit(0))
    return ticket, Settle(1, admission, 0.1, 1.0, Verdict.SUCCESS, Outcome.SUCCESS, payload={"rank": 1})


def test_a_journal_that_is_full_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with monkeypatch.context() as small:
        small.setattr(journal, "MOST_PAGES", 1)
        assert not journal.spool(*outcome())
    assert "provider outcome lost" in caplog.text
    assert journal.spool(*outcome())
    assert calls.waiting() == 1


def test_an_outcome_that_cannot_be_settled_does_not_hold_up_the_others() -> None:
    admitting.make_gate(WHO)
    ticket, settlement = outcome()
    journal.spool(ticket, settlement._replace(duration=-1.0))  # which the table refuses
    journal.spool(*outcome())
    assert journal.replay() == 1
    assert (calls.waiting(), attempts()) == (1, [("success", None)])
    [finding] = [one for one in providers.findings() if one.check == "journal of providers"]
    assert (finding.level, finding.text.endswith(": 1")) == ("warning", True)

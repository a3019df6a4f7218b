"""Plain functions as providers: called like functions, under everything that a provider is called under."""

import asyncio
import inspect
import itertools
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, assert_type
from uuid import UUID

import httpx
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import call_command
from django.db import connection, transaction

import providers
from engines import ConsumerPolicy, ConsumerTask, Transaction, transactions
from engines.connectors.memory import MemoryConnector
from engines.core.errors import PolicyError
from engines.models import DeadLetter
from ergon_site.celery import app
from providers import (
    BreakerPolicy,
    CeleryProviderTask,
    ProviderAuthError,
    ProviderBadRequestError,
    ProviderCircuitOpenError,
    ProviderConnectionError,
    ProviderDependencyError,
    ProviderExecutionContext,
    ProviderInternalError,
    ProviderQuotaExceededError,
    ProviderRateLimitError,
    ProviderResponseFormatError,
    ProviderTimeoutError,
    ProviderUsageError,
    RetryPolicy,
    active_policy,
    calls,
    policies,
    registry,
)
from providers.checks import check_providers
from providers.core.exchange import Who
from providers.models import Gate, IdempotencyClaim, ProviderExecutionMetric, ProviderHealthState
from tests.providers.http_servers import serving
from tests.providers.scripted_providers import AT_ONCE, TENANT

pytestmark = pytest.mark.django_db(transaction=True)

OTHER = "0b1e6f0c-0f4e-4c0f-9a52-3f3a0a1e9c22"
_numbers = itertools.count()

Call = Callable[..., Any]
Decorate = Callable[..., Any]


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    """The names of a provider that no other test uses."""
    found = (f"rank-{next(_numbers)}", "snapshot")
    yield found
    registry.forget(*found)


@pytest.fixture(params=["function", "coroutine function"])
def made(request: pytest.FixtureRequest, names: tuple[str, str]) -> Decorate:
    """Decorate a function as it is, or as a coroutine function; in both cases it is called as a function."""

    def make(function: Call, **options: Any) -> Call:
        options = {"retry": AT_ONCE, "operation": "snapshot", **options}
        if request.param == "function":
            return providers.call(*names, **options)(function)

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        awaited.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        decorated = providers.call(*names, **options)(awaited)
        assert asyncio.iscoroutinefunction(decorated)
        return async_to_sync(decorated)

    return make


@pytest.fixture
def for_tenant() -> Iterator[None]:
    with providers.calling(tenant_id=TENANT):
        yield


def rows(*columns: str) -> list[Any]:
    return list(ProviderExecutionMetric.objects.order_by("id").values_list(*columns))


@pytest.mark.usefixtures("for_tenant")
@pytest.mark.parametrize("value", [3, None, "tea", [1], {"rank": 3}, (1, date(2026, 3, 1)), object()])
def test_a_function_returns_what_it_returns_and_the_call_is_written_down(made: Decorate, value: Any) -> None:
    assert made(lambda _keyword: value)("tea") is value
    assert rows("operation", "outcome", "attempt_number") == [("snapshot", "success", 1)]
    assert ProviderHealthState.objects.get().success_rate_1h == 1.0


@pytest.mark.usefixtures("for_tenant")
def test_it_is_tried_again_and_knows_its_attempt_tenant_and_time(made: Decorate) -> None:
    seen = []

    def fetch() -> str:
        seen.append(providers.current_call())
        if len(seen) < 3:
            raise TimeoutError
        return "found"

    assert made(fetch, timeout=20.0)() == "found"
    assert rows("attempt_number", "outcome") == [(1, "retry"), (2, "retry"), (3, "success")]
    assert [(one.attempt, one.tenant_id, one.idempotency_key) for one in seen] == [
        (number, TENANT, None) for number in (1, 2, 3)
    ]
    assert {one.correlation_id for one in seen} == set(itertools.chain(*rows("correlation_id")))
    assert all(0 < (one.remaining or 0) <= 20 for one in seen)


@pytest.mark.usefixtures("for_tenant")
def test_a_failure_is_raised_as_ours_with_its_cause(made: Decorate) -> None:
    slow = TimeoutError("slow")

    def fetch() -> None:
        raise slow

    with pytest.raises(ProviderTimeoutError) as caught:
        made(fetch)()
    assert caught.value.__cause__ is slow
    assert rows("outcome") == [("retry",), ("retry",), ("failed",)]


@pytest.mark.usefixtures("for_tenant")
def test_exceptions_of_a_library_mean_what_the_decorator_says(made: Decorate) -> None:
    class Throttled(Exception):  # noqa: N818
        response = SimpleNamespace(status_code=429, headers={"Retry-After": "60"})

    def fetch(error: Exception) -> None:
        raise error

    meanings = {KeyError: ProviderBadRequestError, LookupError: ProviderDependencyError}
    decorated = made(fetch, errors=meanings, retry=RetryPolicy(max_attempts=1))
    with pytest.raises(ProviderBadRequestError):
        decorated(KeyError("no such keyword"))
    with pytest.raises(ProviderDependencyError):
        decorated(IndexError())
    with pytest.raises(ProviderInternalError):
        decorated(ValueError())
    with pytest.raises(ProviderTimeoutError):
        decorated(ProviderTimeoutError())
    with pytest.raises(ProviderRateLimitError) as caught:
        decorated(Throttled())
    assert caught.value.retry_after == 60
    with pytest.raises(ProviderRateLimitError, match="requested a pause"):  # for everybody
        decorated(ValueError())


@pytest.mark.usefixtures("for_tenant")
def test_a_function_that_speaks_http_needs_no_words_for_what_fails(made: Decorate) -> None:
    def fetch(url: str) -> int:
        answer = httpx.get(url, timeout=providers.current_call().remaining)
        return answer.raise_for_status().status_code

    once = made(fetch, retry=RetryPolicy(max_attempts=1))
    with serving() as (url, _):
        assert once(f"{url}/text") == 200
        for path, kind, status in (
            ("status/404", ProviderBadRequestError, 404),
            ("status/401", ProviderAuthError, 401),
            ("hanging_up", ProviderConnectionError, None),
            ("again/503/60", ProviderDependencyError, 503),
        ):
            with pytest.raises(kind) as caught:
                once(f"{url}/{path}")
            assert caught.value.http_status == status
        assert caught.value.retry_after == 60
        with pytest.raises(ProviderTimeoutError), providers.calling(tenant_id=OTHER):
            made(fetch, retry=RetryPolicy(max_attempts=1), timeout=1.0)(f"{url}/slow/20")


@pytest.mark.usefixtures("for_tenant")
def test_breaker_and_quota_hold(made: Decorate, names: tuple[str, str]) -> None:
    def fetch(error: Exception | None = None) -> int:
        if error:
            raise error
        return 1

    decorated = made(fetch, breaker=BreakerPolicy(failure_threshold=2, open_cooldown_seconds=3600), retry=AT_ONCE)
    calls.set_quota(Who(TENANT, *names), limit=1, window=86400.0, by="tests")
    assert decorated() == 1
    with pytest.raises(ProviderQuotaExceededError):
        decorated()
    calls.drop_quota(Who(TENANT, *names), by="tests")
    with pytest.raises(ProviderTimeoutError):
        decorated(TimeoutError())
    with pytest.raises(ProviderCircuitOpenError):
        decorated()


def test_a_call_for_no_tenant_is_refused_in_words(made: Decorate) -> None:
    with pytest.raises(ProviderUsageError, match=r"was called for no tenant: call it inside `with providers.calling"):
        made(lambda: 1)()
    assert not rows("id")


@pytest.mark.parametrize("nobody", [None, "", "  "])
def test_a_block_for_nobody_is_refused_and_not_for_somebody_else(nobody: Any) -> None:
    with (
        providers.calling(tenant_id=TENANT),
        pytest.raises(ProviderUsageError, match="tenant_id is missing"),
        providers.calling(tenant_id=nobody),
    ):
        pass


def test_the_decorator_may_name_the_tenant_of_calls_that_name_none(made: Decorate) -> None:
    decorated = made(lambda: providers.current_call().tenant_id, tenant_id=UUID(TENANT))
    assert decorated() == TENANT
    with providers.calling(tenant_id=OTHER):
        assert decorated() == OTHER


def test_an_inner_block_adds_to_the_outer_one(made: Decorate) -> None:
    decorated = made(providers.current_call)
    soon = time.monotonic() + 5
    with providers.calling(tenant_id=UUID(TENANT), campaign_id="spring", correlation_id="order-7", deadline=soon):
        with providers.calling(tenant_id=OTHER, deadline=soon + 3600):
            inner = decorated()
        outer = decorated()
    assert (inner.tenant_id, inner.campaign_id, inner.correlation_id) == (OTHER, "spring", "order-7")
    assert (outer.tenant_id, outer.campaign_id) == (TENANT, "spring")
    assert inner.ends_at == outer.ends_at == soon
    with providers.calling(tenant_id=TENANT):
        assert decorated().correlation_id == decorated().correlation_id
    with providers.calling(tenant_id=TENANT):
        assert decorated().campaign_id is None


@pytest.mark.usefixtures("for_tenant")
def test_a_deadline_covers_all_attempts(made: Decorate) -> None:
    decorated = made(lambda: 1)
    with (
        providers.calling(deadline=time.monotonic() - 1),
        pytest.raises(ProviderTimeoutError, match="the deadline had passed"),
    ):
        decorated()
    with providers.calling(deadline=time.time()), pytest.raises(ProviderUsageError, match="monotonic"):
        decorated()


@pytest.mark.usefixtures("for_tenant")
def test_what_a_function_calls_in_turn_has_its_tenant_and_time_but_not_its_key(names: tuple[str, str]) -> None:
    inner = providers.call("inner", names[0])(providers.current_call)

    @providers.call(*names, timeout=7.0)
    def outer() -> tuple[Any, Any]:
        return providers.current_call(), inner()

    with providers.calling(idempotency_key="order-1"):
        mine, its = outer()
    assert (its.tenant_id, its.correlation_id) == (mine.tenant_id, mine.correlation_id)
    assert its.ends_at == mine.ends_at
    assert (mine.idempotency_key, its.idempotency_key) == ("order-1", None)


def test_without_a_call_there_is_no_current_one() -> None:
    with pytest.raises(ProviderUsageError, match="no call is being made"):
        providers.current_call()


@dataclass(frozen=True)
class Rank:
    position: int
    on: date


KEPT = [
    3,
    None,
    {"rank": [1, 2]},
    (1, (2, 3)),
    {"at": date(2026, 3, 1), "price": Decimal("1.50"), "raw": b"\x00\xff"},
    {1, 2},
    {1: "one"},
]


@pytest.mark.parametrize("value", KEPT)
def test_a_success_is_given_again_for_the_same_key_with_its_types(made: Decorate, value: Any) -> None:
    count = itertools.count(1)
    decorated = made(lambda keyword: (next(count), value, keyword))
    with providers.calling(tenant_id=TENANT, idempotency_key="order-1"):
        first, again = decorated("tea"), decorated(keyword="tea")
    assert first == again == (1, value, "tea")
    assert type(again[1]) is type(value)
    assert IdempotencyClaim.objects.get().state == "succeeded"


def test_an_answer_of_another_class_is_given_again_by_dump_and_load(made: Decorate) -> None:
    value = Rank(3, date(2026, 3, 1))
    decorated = made(lambda: value, dump=asdict, load=lambda kept: Rank(**kept))
    with providers.calling(tenant_id=TENANT, idempotency_key="order-1"):
        assert decorated() is value
        assert (again := decorated()) == value
        assert again is not value


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "class .*Rank cannot be kept"),
        ({"dump": lambda _: 1 / 0}, "dump raised ZeroDivisionError"),
        ({"dump": asdict, "load": lambda _: 1 / 0}, "load raised ZeroDivisionError"),
    ],
)
def test_an_answer_that_cannot_be_given_again_is_refused_and_never_another_kind(
    made: Decorate, options: dict[str, Any], said: str
) -> None:
    value, made_calls = Rank(3, date(2026, 3, 1)), []

    def fetch() -> Rank:
        made_calls.append(1)
        return value

    decorated = made(fetch, **options)
    with providers.calling(tenant_id=TENANT, idempotency_key="order-1"):
        assert decorated() is value
        with pytest.raises(ProviderResponseFormatError, match=said):
            decorated()
    assert made_calls == [1]


def test_a_key_with_other_arguments_is_refused(made: Decorate) -> None:
    decorated = made(lambda keyword, country="at": f"{keyword}.{country}")
    with providers.calling(tenant_id=TENANT, idempotency_key="order-1"):
        assert decorated("tea") == decorated("tea", country="at") == "tea.at"
        with pytest.raises(ProviderBadRequestError, match="another request"):
            decorated("tea", "de")


@pytest.mark.usefixtures("for_tenant")
def test_equal_calls_are_made_once_where_that_is_wanted(made: Decorate) -> None:
    count = itertools.count(1)
    decorated = made(lambda _when, *_more, **_named: next(count), deduplicate=True)
    assert decorated(date(2026, 3, 1), 2, flag=True) == decorated(date(2026, 3, 1), 2, flag=True) == 1
    assert decorated(date(2026, 3, 2), 2, flag=True) == 2
    assert decorated(date(2026, 3, 1), 3, flag=True) == 3


@pytest.mark.usefixtures("for_tenant")
def test_an_argument_that_is_no_data_counts_for_no_key(made: Decorate) -> None:
    count = itertools.count(1)

    def fetch(session: Any, keyword: str) -> int:
        return next(count)

    with pytest.raises(ProviderInternalError, match="since session is no data"):
        made(fetch, deduplicate=True)(object(), "tea")
    declared = made(fetch, deduplicate=True, idempotency_fields=["keyword"])
    assert declared(object(), "tea") == declared(object(), "tea") == 1
    plain = made(fetch)
    assert (plain(object(), "tea"), plain(object(), "tea")) == (2, 3)


@pytest.mark.usefixtures("for_tenant")
def test_wrong_arguments_are_those_of_a_function(made: Decorate) -> None:
    decorated = made(lambda keyword: keyword)
    with pytest.raises(TypeError, match="missing a required argument: 'keyword'"):
        decorated()
    assert not rows("id")


@pytest.mark.usefixtures("for_tenant")
def test_nothing_is_called_inside_a_transaction(made: Decorate) -> None:
    decorated = made(lambda: 1)
    with transaction.atomic(), pytest.raises(ProviderUsageError):
        decorated()


@pytest.mark.usefixtures("for_tenant")
def test_a_coroutine_is_cut_off_at_its_time(names: tuple[str, str]) -> None:
    @providers.call(*names, timeout=0.2, retry=RetryPolicy(max_attempts=1))
    async def fetch() -> None:
        await asyncio.sleep(3600)

    with pytest.raises(ProviderTimeoutError):
        async_to_sync(fetch)()
    # By whoever calls it as a provider, from a thread, too.
    result = registry.find(*names).execute(
        tenant_id=TENANT, operation="fetch", payload={}, context=providers.ProviderExecutionContext()
    )
    assert result.reason_code == "timeout"


def test_the_block_goes_with_coroutines_and_with_threads_that_are_given_it(names: tuple[str, str]) -> None:
    @providers.call(*names)
    async def whose(number: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return number, providers.current_call().tenant_id

    async def several() -> list[tuple[int, str]]:
        async def one(number: int) -> tuple[int, str]:
            with providers.calling(tenant_id=TENANT if number % 2 else OTHER):
                return await whose(number)

        return await asyncio.gather(*map(one, range(4)))

    assert async_to_sync(several)() == [(0, OTHER), (1, TENANT), (2, OTHER), (3, TENANT)]
    blocking = providers.call(*names, operation="blocking")(lambda: providers.current_call().tenant_id)
    with providers.calling(tenant_id=TENANT), ThreadPoolExecutor(1) as pool:
        assert pool.submit(copy_context().run, in_thread, blocking).result() == TENANT
        assert isinstance(pool.submit(in_thread, blocking).exception(), ProviderUsageError)
        assert async_to_sync(sync_to_async(blocking))() == TENANT


def in_thread(function: Call) -> Any:
    try:
        return function()
    finally:
        connection.close()


def test_functions_of_one_decorator_share_breaker_and_policy(names: tuple[str, str]) -> None:
    rank = providers.call(*names, tenant_id=TENANT, timeout=4.0)

    @rank
    def by_keyword(keyword: str) -> int:
        return len(keyword)

    @rank
    def by_domain(domain: str) -> str:
        return domain

    assert (by_keyword("tea"), by_domain("tea.example")) == (3, "tea.example")
    assert Gate.objects.count() == 1
    assert rows("operation") == [("by_keyword",), ("by_domain",)]
    same = providers.call(*names, timeout=4.0, operation="third")(lambda: 3)
    with providers.calling(tenant_id=TENANT):
        assert same() == 3


def test_two_policies_or_functions_for_one_thing_are_refused(names: tuple[str, str]) -> None:
    def fetch() -> int:
        return 1

    def other() -> int:
        return 2

    providers.call(*names, timeout=4.0)(fetch)
    with pytest.raises(ProviderUsageError, match=r"under another policy or version in .*fetch"):
        providers.call(*names, timeout=5.0)(other)
    with pytest.raises(ProviderUsageError, match="has an operation 'fetch' already"):
        providers.call(*names, timeout=4.0, operation="fetch")(other)
    # A module that is loaded again, or a cell of a notebook that is run again.
    again = providers.call(*names, timeout=5.0, tenant_id=TENANT)(fetch)
    assert again() == 1
    assert registry.find(*names).timeout == 5.0


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"operation": ""}, ProviderUsageError, "operation is missing"),
        ({"operation": "x" * 101}, ProviderUsageError, "longer than 100"),
        ({"timeout": -1}, PolicyError, "timeout"),
        ({"max_atempts": 3}, TypeError, "max_atempts"),
        ({"idempotency_fields": ["keywrd"]}, ProviderUsageError, "no arguments of it: keywrd"),
    ],
)
def test_a_mistake_in_a_decorator_is_refused_at_once(
    names: tuple[str, str], options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        providers.call(*names, **options)(lambda keyword: keyword)


def test_a_generator_is_refused(names: tuple[str, str]) -> None:
    def pages() -> Iterator[int]:
        yield 1

    with pytest.raises(ProviderUsageError, match="is a generator"):
        providers.call(*names)(pages)


@pytest.mark.usefixtures("for_tenant")
def test_what_is_to_be_awaited_is_no_answer(names: tuple[str, str]) -> None:
    async def later() -> int:
        return 1

    def fetch() -> Any:
        return later()

    with pytest.raises(ProviderInternalError, match="decorate a coroutine function"):
        providers.call(*names)(fetch)()


def test_it_is_known_like_a_class(names: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    @providers.call(*names, tenant_id=TENANT, timeout=90.0)
    def fetch(keyword: str, country: str = "at") -> str:
        """The rank of a keyword."""
        return f"{keyword}.{country}"

    assert (fetch.__name__, fetch.__doc__, fetch.__wrapped__("a")) == (  # type: ignore[attr-defined]
        "fetch",
        "The rank of a keyword.",
        "a.at",
    )
    kind = registry.classes()[names]
    assert active_policy.defaults_of(kind).timeout == 90.0
    assert kind in {message.obj for message in check_providers() if message.id == "providers.W003"}
    policies.write(*names, body={"timeout": 3.0}, by="tests", reason="it hangs")
    assert active_policy.governing(registry.find(*names)).policy.timeout == 3.0
    call_command("quota", "set", TENANT, *names, "--limit", "5", "--window", "3600")
    assert fetch("tea") == "tea.at"
    assert Gate.objects.get().used == 1

    def ask(operation: str, payload: dict[str, Any]) -> Any:
        return registry.find(*names).execute(
            tenant_id=TENANT, operation=operation, payload=payload, context=providers.ProviderExecutionContext()
        )

    assert dict(ask("fetch", {"keyword": "tea"}).payload) == {"value": "tea.at"}
    for operation, payload in (("fetch", {}), ("fetch", {"keyword": "a", "k": 1}), ("fetsch", {"keyword": "a"})):
        result = ask(operation, payload)
        assert (result.reason_code, result.error.never_left) == ("bad_request", True)


def test_in_a_task_of_the_engines_a_call_has_its_transaction_and_its_time(names: tuple[str, str]) -> None:
    seen = []

    @providers.call(*names, tenant_id=TENANT)
    def fetch() -> None:
        seen.append(providers.current_call())

    class Fetch(ConsumerTask):
        def process_transaction(self, transaction: Transaction) -> None:
            in_thread(fetch)

    policy = ConsumerPolicy.from_dict({"steps": {"process": {"retry": {"timeout": 20.0}}}})
    report = Fetch(connectors={"inbox": MemoryConnector([Transaction("order-7", 1), Transaction("x" * 300, 1)])})
    assert report.consume_transactions(policy).succeeded == 2
    assert rows("correlation_id") == [("order-7",), (seen[1].correlation_id,)]
    assert len(seen[1].correlation_id) == 32
    assert all(0 < (one.remaining or 0) < 20 for one in seen)


def test_types_are_kept(names: tuple[str, str]) -> None:
    """What is said of types is checked by mypy, with all tests."""
    rank = providers.call(*names, tenant_id=TENANT)

    @rank
    def fetch(keyword: str, *, country: str = "at") -> list[int]:
        return [len(keyword), len(country)]

    @rank
    async def afetch(keyword: str) -> tuple[int, str]:
        return len(keyword), keyword

    async def both() -> tuple[int, str]:
        return assert_type(await afetch("tea"), tuple[int, str])

    assert assert_type(fetch("tea", country="de"), list[int]) == [3, 2]
    assert async_to_sync(both)() == (3, "tea")
    with pytest.raises(TypeError):
        fetch("tea", land="de")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        fetch()  # type: ignore[call-arg]


@pytest.fixture
def task() -> Iterator[Callable[..., Any]]:
    """Make a Celery task, which runs where it is called."""
    made_tasks: list[str] = []

    def make(run: Call, **options: Any) -> Any:
        made_tasks.append(f"tests.function-{next(_numbers)}")
        return app.task(base=CeleryProviderTask, name=made_tasks[-1], **options)(run)

    app.conf.task_always_eager = True
    yield make
    app.conf.task_always_eager = False
    for name in made_tasks:
        app.tasks.unregister(name)


def test_a_celery_task_calls_a_function_like_any_provider_and_a_dead_letter_is_replayed(
    names: tuple[str, str], task: Callable[..., Any]
) -> None:
    answers: Iterator[Any] = iter([ValueError("odd"), (1, 2), "never"])

    @providers.call(*names, retry=AT_ONCE)
    def fetch(keyword: str) -> Any:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    def body(**asked: Any) -> None:
        """Asks what it was sent."""

    ask = task(body, provider=names[0], capability=names[1])
    asked = {"tenant_id": TENANT, "operation": "fetch", "payload": {"keyword": "tea"}}
    with pytest.raises(ProviderInternalError):
        ask.apply_async(kwargs=asked).get()
    letter = DeadLetter.objects.get()
    assert (letter.source, letter.payload) == ("/".join(names), {"keyword": "tea"})
    transactions.replay_letter(letter.pk, by="tests", reason="it is back")
    assert rows("outcome") == [("dead_letter",), ("success",)]
    claim = IdempotencyClaim.objects.get()
    assert json.loads(claim.answer or "") == {"value": {"$": "tuple", "value": [1, 2]}}
    # And whoever calls it with that key, as a function.
    with providers.calling(tenant_id=TENANT, idempotency_key=claim.key):
        assert fetch("tea") == (1, 2)


def test_in_a_celery_task_a_function_has_its_tenant_its_id_and_its_time(
    names: tuple[str, str], task: Callable[..., Any]
) -> None:
    seen = []
    fetch = providers.call(*names, operation="fetch", timeout=None)(lambda: seen.append(providers.current_call()))

    def run(*, tenant_id: str) -> str:
        fetch()
        return "done"

    body = task(run, provider=names[0], capability=names[1], timeout_budget=30.0)
    assert body.apply(kwargs={"tenant_id": TENANT}, task_id="t-1").get() == "done"
    [call] = seen
    assert (call.tenant_id, call.correlation_id) == (TENANT, "t-1")
    assert 0 < (call.remaining or 0) <= 30
    with pytest.raises(ProviderUsageError, match="no call is being made"):
        providers.current_call()


@pytest.mark.usefixtures("for_tenant")
@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("value", [7, None, object()])
def test_a_fallback_answers_for_a_call_that_has_failed_for_good(
    made: Decorate, value: Any, *, is_awaited: bool
) -> None:
    seen: list[Any] = []

    def instead(error: providers.ProviderError, keyword: str, *, country: str) -> Any:
        seen.append((error.reason_code, keyword, country))
        return value

    async def later(error: providers.ProviderError, keyword: str, *, country: str) -> Any:
        await asyncio.sleep(0)
        return instead(error, keyword, country=country)

    def fetch(keyword: str, *, country: str = "de") -> int:
        raise TimeoutError(keyword, country)

    assert made(fetch, fallback=later if is_awaited else instead)("tea") is value
    assert seen == [("timeout", "tea", "de")]
    assert rows("outcome", "source")[-2:] == [("failed", "provider"), ("success", "fallback")]


@pytest.mark.usefixtures("for_tenant")
def test_a_fallback_that_raises_the_error_of_the_call_has_no_answer(
    made: Decorate, caplog: pytest.LogCaptureFixture
) -> None:
    def instead(error: providers.ProviderError, keyword: str) -> int:
        if keyword == "tea":
            return 0
        if keyword == "milk":
            raise error
        raise KeyError(keyword)

    def fetch(keyword: str) -> int:
        raise ProviderBadRequestError(keyword)

    decorated = made(fetch, fallback=instead)
    assert decorated("tea") == 0
    with pytest.raises(ProviderBadRequestError):
        decorated("milk")
    assert "provider fallback failed" not in caplog.text
    with pytest.raises(ProviderBadRequestError):
        decorated("coffee")
    assert "provider fallback failed" in caplog.text


def test_functions_of_one_provider_have_fallbacks_of_their_own(names: tuple[str, str]) -> None:
    def fail(keyword: str) -> str:
        raise ProviderBadRequestError(keyword)

    options: dict[str, Any] = {"retry": AT_ONCE, "tenant_id": TENANT}
    careful = providers.call(*names, operation="careful", fallback=lambda _, keyword: f"no {keyword}", **options)(fail)
    plain = providers.call(*names, operation="plain", **options)(fail)
    assert careful("tea") == "no tea"
    with pytest.raises(ProviderBadRequestError):
        plain("tea")
    # Known by its names, as a Celery task does it.
    found = registry.find(*names).execute(
        tenant_id=TENANT, operation="careful", payload={"keyword": "milk"}, context=ProviderExecutionContext()
    )
    assert (found.ok, found.source, found.payload) == (True, "fallback", {"value": "no milk"})


def test_a_fallback_that_takes_other_arguments_is_refused(names: tuple[str, str]) -> None:
    def fetch(keyword: str, *, country: str) -> str:
        return keyword + country

    with pytest.raises(ProviderUsageError, match=r"must take \(error, keyword, country\)"):
        providers.call(*names, fallback=lambda keyword: keyword)(fetch)

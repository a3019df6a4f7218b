"""What a task does in the process that calls it: its arguments, its provider, its end."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.core import checks
from django_celery_results.models import TaskResult

from engines import transactions
from engines.models import DeadLetter
from ergon_site.celery import app
from providers import (
    CeleryProviderTask,
    ProviderBadRequestError,
    ProviderInternalError,
    ProviderRateLimitError,
    ProviderTimeoutError,
    ProviderUsageError,
    UnknownProviderError,
    invocations,
    register,
    registry,
)
from providers.models import OutboxLetter, ProviderExecutionMetric, ProviderHealthState, TaskExecution
from tests import database
from tests.factories import TaskExecutionFactory
from tests.processes import run_module
from tests.providers.scripted_providers import Scripted, Step, scripted

pytestmark = pytest.mark.django_db(transaction=True)

Made = Callable[..., tuple[Any, Scripted]]
REQUEST: dict[str, Any] = {"tenant_id": "t", "operation": "snapshot", "payload": {"keyword": "tea"}}


class Fetch(CeleryProviderTask):
    name, provider, capability = "tests.fetch", "rank", "rank_snapshot"


@pytest.fixture
def made() -> Iterator[Made]:
    """Makes a task and the provider that it finds."""

    def make(*script: Step, **attributes: Any) -> tuple[Any, Scripted]:
        provider = scripted(*script, **attributes)
        register(provider)
        task: Any = app.register_task(Fetch())
        return task, provider

    yield make
    registry.forget("rank", "rank_snapshot")
    app.tasks.unregister("tests.fetch")


def test_a_task_finds_its_provider_and_gives_its_answer(made: Made) -> None:
    task, provider = made({"rank": 1, "at": Path("/x")})
    result = task.apply(kwargs=REQUEST | {"campaign_id": "spring"}, task_id="t-1")
    assert result.get() == {"rank": 1, "at": "/x"}
    [context] = provider.calls
    assert (context.correlation_id, context.task_name, context.may_return) == ("t-1", "tests.fetch", False)
    row = TaskExecution.objects.get()
    assert (row.state, row.celery_task_id, row.tenant_id) == ("succeeded", "t-1", "t")
    assert row.finished_at is not None
    assert json.loads(TaskResult.objects.get(task_id="t-1").result) == {"rank": 1, "at": "/x"}


def test_a_soft_limit_that_strikes_while_its_end_is_written_down_costs_a_task_no_answer(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def strike(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    task, _ = made({"rank": 1})
    # In a pool's process a signal raises it, at a moment that no test can choose.
    monkeypatch.setattr(invocations, "end", strike)
    assert task.apply(kwargs=REQUEST).get() == {"rank": 1}


def test_the_body_of_a_task_knows_whose_answer_it_has(made: Made) -> None:
    class FetchCarefully(Fetch):
        def run(self, **asked: Any) -> Any:
            return {**self.ask(**asked), "source": self.request.source}

    made({"rank": 1}, ProviderBadRequestError("no"), fallback=lambda *_: {"rank": 0})
    app.tasks.unregister("tests.fetch")
    task: Any = app.register_task(FetchCarefully())
    answers = [task.apply(kwargs=REQUEST, task_id=task_id).get() for task_id in ("t-1", "t-2")]
    assert answers == [{"rank": 1, "source": "provider"}, {"rank": 0, "source": "fallback"}]
    assert not OutboxLetter.objects.exists()


def test_a_task_makes_its_request_once_however_often_it_is_delivered(made: Made) -> None:
    task, _ = made({"rank": 1}, {"rank": 2})
    answers = [task.apply(kwargs=REQUEST, task_id="t-1").get() for _ in range(2)]
    assert answers == [{"rank": 1}] * 2
    assert task.apply(kwargs=REQUEST, task_id="t-2").get() == {"rank": 2}


def test_equal_requests_of_several_tasks_are_made_once_if_that_is_wanted(made: Made) -> None:
    task, provider = made({"rank": 1}, {"rank": 2})
    task.deduplicate = True
    answers = [task.apply(kwargs=REQUEST).get() for _ in range(2)]
    assert answers == [{"rank": 1}] * 2
    assert task.apply(kwargs=REQUEST | {"idempotency_key": "mine"}).get() == {"rank": 2}
    keys = ProviderExecutionMetric.objects.order_by("id").values_list("idempotency_key", flat=True)
    assert list(keys) == [provider.request_of(**REQUEST).key, "mine"]


def test_a_provider_that_is_to_be_asked_once_is_asked_once_by_all_tasks(made: Made) -> None:
    task, provider = made({"rank": 1}, {"rank": 2})
    type(provider).deduplicate = True
    assert [task.apply(kwargs=REQUEST).get() for _ in range(2)] == [{"rank": 1}] * 2


@pytest.mark.parametrize("missing", REQUEST)
def test_what_is_not_given_is_missed_where_it_is_sent(made: Made, missing: str) -> None:
    task, provider = made({})
    given = {name: value for name, value in REQUEST.items() if name != missing}
    with pytest.raises(TypeError, match=f"missing a required.*{missing}"):
        task.apply_async(kwargs=given)
    assert (provider.calls, TaskExecution.objects.count()) == ([], 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"tenant_id": ""}, "tenant_id is missing"),
        ({"idempotency_key": " "}, "idempotency_key is missing"),
        ({"idempotency_key": "x" * 201}, "longer than 200"),
        ({"payload": None}, "payload must be an object, not NoneType"),
    ],
)
def test_what_is_given_wrongly_is_told_and_nobody_is_called(made: Made, wrong: dict[str, Any], told: str) -> None:
    task, provider = made({})
    with pytest.raises(ProviderUsageError, match=told):
        task.apply(kwargs=REQUEST | wrong).get()
    assert (provider.calls, TaskExecution.objects.get().state) == ([], "failed")


def test_a_failure_raises_its_error_without_what_it_came_from(made: Made) -> None:
    task, _ = made(ValueError("password=hunter22"))
    result = task.apply(kwargs=REQUEST, task_id="t-1")
    with pytest.raises(Exception, match="password=•••") as caught:
        result.get()
    assert type(caught.value).__name__ == "ProviderInternalError"
    assert "hunter22" not in TaskResult.objects.get().traceback
    assert TaskExecution.objects.get().state == "failed"


def test_where_nobody_brings_a_task_back_a_pause_is_its_end(made: Made) -> None:
    task, _ = made(ProviderRateLimitError(retry_after=600))
    with pytest.raises(ProviderRateLimitError):
        task.apply(kwargs=REQUEST).get()
    assert OutboxLetter.objects.get().payload["reason_code"] == "rate_limited"


def test_what_had_ended_before_it_is_delivered_again_is_not_called_again(made: Made) -> None:
    task, provider = made(ProviderBadRequestError(), {"rank": 1})
    for _ in range(2):
        with pytest.raises(ProviderBadRequestError):
            task.apply(kwargs=REQUEST, task_id="t-1").get()
    assert (len(provider.calls), OutboxLetter.objects.count()) == (1, 1)
    assert [row.state for row in TaskExecution.objects.all()] == ["failed", "failed"]
    assert task.apply(kwargs=REQUEST, task_id="t-2").get() == {"rank": 1}


def test_a_task_whose_processes_die_of_it_ends_as_a_dead_letter(made: Made) -> None:
    task, provider = made(SystemExit(), idempotency_lease=0.1)
    for _ in range(2):
        TaskExecutionFactory.create(task_name="tests.fetch", celery_task_id="t-1")
    task.deliveries = 2
    for _ in range(2):
        with pytest.raises(ProviderInternalError):
            task.apply(kwargs=REQUEST, task_id="t-1").get()
    assert provider.calls == []
    told = OutboxLetter.objects.get().payload
    assert (told["reason_code"], told["attempts"]) == ("internal_error", 2)


def test_a_task_has_one_deadline_for_calls_and_waits(made: Made) -> None:
    task, provider = made({})
    task.timeout_budget = 7.0
    task.apply(kwargs=REQUEST).get()
    assert 0 < (provider.calls[0].timeout or 0) <= 7


def test_a_task_asks_once_in_each_invocation(made: Made) -> None:
    made({})

    class Twice(Fetch):
        name = "tests.twice"

        def run(self, **request: Any) -> Any:
            super().run(**request)
            return super().run(**request)

    task: Any = app.register_task(Twice())
    with pytest.raises(ProviderUsageError, match="calls its provider twice"):
        task.apply(kwargs=REQUEST).get()
    app.tasks.unregister("tests.twice")


def body(made: Made, run: Callable[..., Any]) -> Any:
    """A task with a body of its own."""
    made({"rank": 1}, ProviderBadRequestError())
    task: Any = app.register_task(type("Own", (Fetch,), {"name": "tests.own", "run": run})())
    return task


@pytest.fixture
def _own() -> Iterator[None]:
    yield
    app.conf.task_always_eager = False
    app.tasks.unregister("tests.own")


@pytest.mark.usefixtures("_own")
def test_what_a_task_raises_of_its_own_is_one_of_our_errors_and_leaves_a_letter(made: Made) -> None:
    fails = [True]

    def run(task: Any, *, tenant_id: str, keyword: str) -> Any:
        answer = task.ask(tenant_id=tenant_id, operation="snapshot", payload={"keyword": keyword})
        if fails[0]:
            msg = f"no such place: token=abcdefgh {answer}"
            raise KeyError(msg)
        return answer["rank"]

    task = body(made, run)
    with pytest.raises(ProviderInternalError, match="no such place: token=•••"):
        task.apply(kwargs={"tenant_id": "t", "keyword": "tea"}, task_id="t-1").get()
    row = TaskExecution.objects.get()
    assert (row.state, row.tenant_id, row.celery_task_id) == ("failed", "t", "t-1")
    told = OutboxLetter.objects.get().payload
    assert (told["reason_code"], told["attempts"], told["task_name"]) == ("internal_error", 1, "tests.own")
    letter = DeadLetter.objects.get()
    assert "KeyError" in letter.traceback
    assert "abcdefgh" not in letter.traceback
    # The provider did its part.
    assert ProviderHealthState.objects.get().execution_rate_1h == 1.0
    assert list(ProviderExecutionMetric.objects.values_list("outcome", flat=True)) == ["success"]
    fails[0] = False
    app.conf.task_always_eager = True
    transactions.replay_letter(letter.pk, by="ada", reason="the place is there")
    assert TaskExecution.objects.latest("pk").state == "succeeded"
    assert ProviderExecutionMetric.objects.count() == 1


@pytest.mark.postgresql
@pytest.mark.usefixtures("_own")
def test_a_task_that_keeps_its_letter_holds_up_others_of_its_group_for_seconds_at_most(made: Made) -> None:
    def run(task: Any, *, tenant_id: str, keyword: str) -> Any:
        task.ask(tenant_id=tenant_id, operation="snapshot", payload={"keyword": keyword})
        raise KeyError

    with database.idle_limits("INSERT INTO") as limits, pytest.raises(ProviderInternalError):
        body(made, run).apply(kwargs={"tenant_id": "t", "keyword": "tea"}).get()
    assert OutboxLetter.objects.exists()
    assert "5s" in limits


@pytest.mark.usefixtures("_own")
def test_a_task_that_fails_before_it_asks_is_an_invocation_too(made: Made) -> None:
    def run(task: Any, tenant_id: str, keyword: str) -> Any:
        raise TimeoutError(task.name, tenant_id, keyword)

    task = body(made, run)
    with pytest.raises(ProviderTimeoutError):
        task.apply(args=["t", "tea"]).get()
    row = TaskExecution.objects.get()
    assert (row.state, row.tenant_id) == ("failed", "t")
    assert not OutboxLetter.objects.exists()


@pytest.mark.usefixtures("_own")
def test_whose_invocation_it_is_may_be_known_only_when_it_asks(made: Made) -> None:
    def run(task: Any, *, keyword: str) -> Any:
        return task.ask(tenant_id="t", operation="snapshot", payload={"keyword": keyword})

    task = body(made, run)
    assert task.apply(kwargs={"keyword": "tea"}).get() == {"rank": 1}
    row = TaskExecution.objects.get()
    assert (row.state, row.tenant_id) == ("succeeded", "t")
    with pytest.raises(ProviderBadRequestError):
        task.apply(kwargs={"keyword": "coffee"}).get()
    assert TaskExecution.objects.latest("pk").state == "failed"


@pytest.mark.usefixtures("_own")
def test_a_task_that_makes_do_without_an_answer_keeps_its_letter_and_its_end(made: Made) -> None:
    def run(task: Any, *, keyword: str) -> Any:
        try:
            return task.ask(tenant_id="t", operation="snapshot", payload={"keyword": keyword})
        except ProviderBadRequestError:
            if keyword == "none":
                msg = "it cannot do without"
                raise ValueError(msg) from None
            return {"rank": None}

    task = body(made, run)
    answers = [task.apply(kwargs={"keyword": keyword}).get() for keyword in ("tea", "coffee")]
    assert answers == [{"rank": 1}, {"rank": None}]
    with pytest.raises(ProviderInternalError, match="cannot do without"):
        task.apply(kwargs={"keyword": "none"}).get()
    states = TaskExecution.objects.order_by("pk").values_list("state", flat=True)
    assert (list(states), OutboxLetter.objects.count()) == (["succeeded", "failed", "failed"], 2)


def test_a_task_that_names_nobody_is_found_at_start(made: Made) -> None:
    made({})
    assert not [one for one in checks.run_checks() if one.id == "providers.E008"]
    task: Any = app.register_task(type("Lost", (Fetch,), {"name": "tests.lost", "provider": "nobody"})())
    [found] = [one for one in checks.run_checks() if one.id == "providers.E008"]
    assert found.msg.startswith("The task 'tests.lost' has no provider: there is no provider 'nobody'")
    with pytest.raises(UnknownProviderError):
        task.apply(kwargs=REQUEST).get()
    assert TaskExecution.objects.get().state == "failed"
    app.tasks.unregister("tests.lost")


def test_one_of_several_providers_of_the_same_names_has_to_be_registered() -> None:
    kinds = [type(f"Twin{number}", (Scripted,), {"provider_name": "twin"}) for number in range(2)]
    with pytest.raises(UnknownProviderError, match="there are several of provider 'twin'"):
        registry.find("twin", "rank_snapshot")
    register(kinds[1])
    assert type(registry.find("twin", "rank_snapshot")) is kinds[1]
    registry.forget("twin", "rank_snapshot")


def test_a_provider_that_alone_has_its_names_needs_no_registration() -> None:
    kind = type("Alone", (Scripted,), {"provider_name": "alone"})
    assert type(registry.find("alone", "rank_snapshot")) is kind
    assert registry.find("alone", "rank_snapshot") is registry.find("alone", "rank_snapshot")


@pytest.mark.parametrize(("word", "state", "letters"), [("fine", "SUCCESS", 0), ("status:400", "FAILURE", 1)])
def test_without_a_broker_a_task_runs_where_it_is_sent_and_letters_wait(
    word: str, state: str, letters: int, tmp_path: Path
) -> None:
    ended = run_module("tests.providers.celery_tasks", str(tmp_path / "calls"), word, CELERY_BROKER_URL="")
    assert json.loads(ended.stdout.splitlines()[-1])[0] == state, ended.stderr
    assert OutboxLetter.objects.filter(published_at__isnull=True, failures=0).count() == letters
    assert TaskResult.objects.get().status == state

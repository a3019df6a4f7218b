"""Dead letters of providers are replayed like all others: once, written down, through breaker and quota."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import transaction
from django.test import Client

from engines import dead_letters, transactions
from engines.dead_letters import LetterSettledError, NotReplayableError, bulk
from engines.dead_letters.bulk import Terms
from engines.models import BulkOperation, DeadLetter
from ergon_site.access.models import AuditEntry
from ergon_site.celery import app
from providers import calls
from providers.core.exchange import Who
from providers.models import OutboxLetter, ProviderExecutionMetric, TaskExecution
from tests.api.api_clients import client_with, post
from tests.commands import ask
from tests.console import records
from tests.console.records import read
from tests.factories import make_pipeline
from tests.processes import eventually, manage, run
from tests.providers import scripted_providers
from tests.providers.celery_tasks import tell, tell_words

pytestmark = pytest.mark.django_db(transaction=True)

WHO = Who("t", "told", "anything")
LETTERS = "/admin/engines/deadletter/"
WHY = "it is well again"


@pytest.fixture(autouse=True)
def _without_a_broker() -> Iterator[None]:
    """Tasks run where they are sent."""
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


@pytest.fixture
def letter(tmp_path: Path) -> DeadLetter:
    """Of a call that was refused once; it would succeed now."""
    return fail(tmp_path / "calls", "status:400", "fine")


def fail(log: Path, *script: str, **about: Any) -> DeadLetter:
    payload = {"script": list(script), "log": str(log)}
    tell.apply_async(kwargs={"tenant_id": "t", "operation": "tell", "payload": payload, **about})
    return DeadLetter.objects.latest("pk")


def outcomes() -> list[str]:
    return list(ProviderExecutionMetric.objects.order_by("id").values_list("outcome", flat=True))


def test_a_replay_makes_the_call_again_and_is_written_down(letter: DeadLetter) -> None:
    new = transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    letter.refresh_from_db()
    assert (letter.state, letter.replayed_as, letter.settled_by) == ("replayed", new, "ada")
    assert outcomes() == ["dead_letter", "success"]
    assert TaskExecution.objects.get(celery_task_id=new).state == "succeeded"
    entry = AuditEntry.objects.get(action="dead_letter.replay")
    assert (entry.actor, entry.reason, entry.after) == ("ada", WHY, {"as": new})


def test_a_letter_is_replayed_once(letter: DeadLetter) -> None:
    transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    with pytest.raises(LetterSettledError):
        transactions.replay_letter(letter.pk, by="bob", reason=WHY)
    assert outcomes() == ["dead_letter", "success"]


def test_a_replay_that_fails_leaves_a_letter_of_its_own(tmp_path: Path) -> None:
    letter = fail(tmp_path / "calls", "status:400", "status:403")
    new = transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    again = dead_letters.find(new)
    assert (again.pk != letter.pk, again.state, again.details["reason_code"]) == (True, "open", "auth_failed")
    assert OutboxLetter.objects.count() == 2


def test_a_replay_passes_breaker_and_quota(letter: DeadLetter) -> None:
    calls.force_open(WHO, by="ada", reason="not yet")
    new = transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    assert dead_letters.find(new).details["reason_code"] == "circuit_open"
    calls.reset(WHO, by="ada", reason="over")
    calls.set_quota(WHO, limit=1, window=86400.0, by="ada")
    transactions.replay_letter(dead_letters.find(new).pk, by="ada", reason=WHY)
    assert outcomes() == ["dead_letter", "dead_letter", "success"]
    assert calls.admit(WHO, _asked()).decision.value == "quota"


def _asked() -> Any:
    from providers import BreakerPolicy
    from providers.core.gate import Asked

    return Asked(BreakerPolicy(), 1)


def test_an_edited_payload_is_asked_under_a_key_of_its_own(letter: DeadLetter, tmp_path: Path) -> None:
    edited = {**(letter.payload or {}), "script": ["status:400", "better"]}
    new = transactions.replay_letter(letter.pk, by="ada", reason=WHY, payload=edited)
    metric = ProviderExecutionMetric.objects.get(outcome="success")
    assert (metric.correlation_id, metric.idempotency_key) == (new, f"replay-{letter.pk}")
    entry = AuditEntry.objects.get(action="dead_letter.replay_edited")
    told = entry.after or {}
    assert told["as"] == new
    assert all("script" in path for path in told["edited"])


def test_what_has_succeeded_since_is_not_called_again(tmp_path: Path) -> None:
    letter = fail(tmp_path / "calls", "status:400", "fine", idempotency_key="order-1")
    request = {"tenant_id": "t", "operation": "tell", "payload": letter.payload, "idempotency_key": "order-1"}
    tell.apply_async(kwargs=request)
    new = transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    assert outcomes() == ["dead_letter", "success"]
    assert TaskExecution.objects.get(celery_task_id=new).state == "succeeded"


def test_a_task_with_arguments_of_its_own_is_sent_them_again(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    tell_words.apply_async(["t", "status:400", "fine"], {"log": str(log)})
    letter = DeadLetter.objects.get()
    transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    assert outcomes() == ["dead_letter", "success"]


def test_a_letter_whose_task_is_not_known_stays_open(letter: DeadLetter) -> None:
    letter.details = letter.details | {"task_name": "tests.gone"}
    letter.save()
    with pytest.raises(NotReplayableError, match="is not known here"):
        transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    letter.refresh_from_db()
    assert letter.state == "open"


def test_a_task_of_a_module_that_only_a_variable_names_is_replayed_everywhere(letter: DeadLetter) -> None:
    """Also by a process that runs no tasks itself, and so has not loaded it."""
    asked = ("replay", letter.uid, "--reason", WHY)
    refused = manage(*asked, CELERY_BROKER_URL="")
    assert "is not known here" in refused.stderr
    done = manage(*asked, CELERY_BROKER_URL="", ERGON_TASKS="tests.providers.celery_tasks")
    assert (done.returncode, outcomes()) == (0, ["dead_letter", "success"]), done.stderr


def test_a_module_that_cannot_be_loaded_is_named(letter: DeadLetter, tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text("1 / 0")
    about = {"CELERY_BROKER_URL": "", "ERGON_TASKS": "halves", "PYTHONPATH": str(tmp_path)}
    told = run(sys.executable, "manage.py", "replay", letter.uid, "--reason", WHY, **about)
    assert "is not known here, and ERGON_TASKS: the module 'halves' cannot be imported" in told.stderr


def test_a_letter_that_the_broker_does_not_take_stays_open(letter: DeadLetter, monkeypatch: pytest.MonkeyPatch) -> None:
    app.conf.task_always_eager = False
    # The suite's broker is up; that it is not is what is tested here.
    monkeypatch.setattr(type(tell), "apply_async", lambda *_, **__: (_ for _ in ()).throw(ConnectionError()))
    with pytest.raises(NotReplayableError, match="the broker refused it"):
        transactions.replay_letter(letter.pk, by="ada", reason=WHY)
    letter.refresh_from_db()
    assert letter.state == "open"


def test_the_console_replays_it_and_shows_what_it_became(browse: Client, letter: DeadLetter) -> None:
    page = f"{LETTERS}{letter.pk}/change/"
    assert "cannot be replayed" not in read(browse, page)
    answer = browse.post(f"{LETTERS}{letter.pk}/replay/", {"_form_submitted": "on", "reason": WHY})
    letter.refresh_from_db()
    assert answer.headers["HX-Redirect"] == page
    assert letter.replayed_as in read(browse, page)
    assert outcomes() == ["dead_letter", "success"]


def test_the_console_replays_it_edited(browse: Client, letter: DeadLetter) -> None:
    edited = {**(letter.payload or {}), "script": ["status:400", "better"]}
    form = {"payload": json.dumps(edited), "reason": WHY, "seen": ""}
    shown = browse.post(f"{LETTERS}{letter.pk}/edit/", form).content.decode()
    seen = shown.split('name="seen" value="')[1].split('"')[0]
    answer = browse.post(f"{LETTERS}{letter.pk}/edit/", {**form, "seen": seen, "send": "1"})
    assert answer.headers["Location"] == f"{LETTERS}{letter.pk}/change/"
    assert outcomes() == ["dead_letter", "success"]


def test_the_api_replays_it(letter: DeadLetter) -> None:
    api = client_with("dead_letters:operate", "platform")
    answer = post(api, f"dead-letters/{letter.pk}/replay", {"reason": WHY})
    letter.refresh_from_db()
    assert (answer.status_code, answer.json()) == (201, {"id": letter.replayed_as, "state": "pending"})
    assert post(api, f"dead-letters/{letter.pk}/replay", {"reason": WHY}).json()["code"] == "letter_settled"


@pytest.mark.parametrize("verb", [("replay",), ("dead_letters", "replay")])
def test_the_commands_replay_it(letter: DeadLetter, verb: tuple[str, ...]) -> None:
    told = ask(*verb, letter.uid, "--reason", WHY)
    letter.refresh_from_db()
    assert told["id"] == letter.replayed_as
    with pytest.raises(CommandError, match="was replayed by"):
        ask(*verb, letter.uid, "--reason", WHY)


def test_a_whole_group_is_replayed(tmp_path: Path) -> None:
    letters = [fail(tmp_path / str(number), "status:400", "fine", idempotency_key=str(number)) for number in range(3)]
    bulk.begin("replay", letters[0].group_id, Terms(), by="ada", reason=WHY)
    replayed = DeadLetter.objects.filter(state="replayed")
    eventually(lambda: bulk.advance() >= 0 and replayed.count() == 3, "all are replayed")
    assert outcomes().count("success") == 3


def fail_some(folder: Path, *script: str, count: int = 6) -> list[DeadLetter]:
    return [fail(folder / str(number), *script, idempotency_key=str(number)) for number in range(count)]


def begin(letters: list[DeadLetter], **terms: Any) -> BulkOperation:
    terms = {"rate": 500, **terms}
    return bulk.begin("replay", letters[0].group_id, Terms(**terms), by="ada", reason=WHY)


def advance_to(state: str) -> BulkOperation:
    eventually(lambda: bulk.advance() >= 0 and BulkOperation.objects.get().state == state, f"it is {state}")
    return BulkOperation.objects.get()


def test_a_canary_that_fails_again_stops_the_replay_of_a_group(tmp_path: Path) -> None:
    begin(fail_some(tmp_path, "status:400"), canary=1)
    operation = advance_to("stopped")
    assert (operation.done, operation.note) == (1, "1 of its replays failed again")
    assert ProviderExecutionMetric.objects.count() == 7


def test_a_replay_that_is_rolled_back_and_repeated_is_the_same_task(tmp_path: Path) -> None:
    """The broker has it by then: the copy must count as a redelivery, not as another task."""
    fail_some(tmp_path, "status:400", "fine", count=1)
    sent = []
    for _ in range(2):
        with transaction.atomic():
            sent.append(transactions.replay_letter(DeadLetter.objects.get().pk, by="ada", reason=WHY))
            transaction.set_rollback(True)
    assert len(set(sent)) == 1


def test_the_rest_of_a_group_waits_for_a_canary_that_was_sent_away_for_now(tmp_path: Path) -> None:
    begin(fail_some(tmp_path, "status:400", "fine", count=3), canary=1)
    assert bulk.advance() == 1
    canary = TaskExecution.objects.filter(celery_task_id=DeadLetter.objects.get(state="replayed").replayed_as)
    canary.update(state="rescheduled")
    time.sleep(0.1)
    assert (bulk.advance(), BulkOperation.objects.get().state) == (0, "running")
    canary.update(state="started")
    time.sleep(0.1)
    assert bulk.advance() == 0
    canary.update(state="succeeded")
    assert advance_to("done").done == 3


def test_the_rest_of_a_group_waits_for_a_canary_that_no_worker_has_taken_yet(tmp_path: Path) -> None:
    begin(fail_some(tmp_path, "status:400", "fine", count=2), canary=1)
    assert bulk.advance() == 1
    canary = TaskExecution.objects.get(celery_task_id=DeadLetter.objects.get(state="replayed").replayed_as)
    TaskExecution.objects.filter(pk=canary.pk).update(celery_task_id="of another")
    time.sleep(0.1)
    assert bulk.advance() == 0
    TaskExecution.objects.filter(pk=canary.pk).update(celery_task_id=canary.celery_task_id)
    assert advance_to("done").done == 2


def test_the_replay_of_a_group_stops_when_the_breaker_opens(tmp_path: Path) -> None:
    begin(fail_some(tmp_path, "status:400", "fine", count=3), canary=1)
    assert bulk.advance() == 1
    calls.force_open(WHO, by="bob", reason="they asked us to", lasting=None)
    operation = advance_to("stopped")
    assert (operation.done, operation.note) == (1, "breaker told/anything open until it is reset")
    calls.reset(WHO, by="bob", reason="over")
    bulk.turn(operation.pk, "running", by="ada", reason="on we go")
    assert advance_to("done").done == 3
    assert outcomes().count("success") == 3


def test_the_breaker_of_another_tenant_stops_nothing(tmp_path: Path) -> None:
    letters = fail_some(tmp_path, "status:400", "fine", count=2)
    calls.force_open(Who("other", "told", "anything"), by="bob", reason="they asked us to")
    begin(letters)
    assert advance_to("done").done == 2


def test_transactions_are_not_replayed_against_an_open_breaker() -> None:
    orders = make_pipeline("orders")
    letters = [records.fail(orders, {"n": number}) for number in range(2)]
    scripted_providers.scripted({}).ask(correlation_id=letters[0].uid)
    calls.force_open(scripted_providers.WHO, lasting=timedelta(minutes=5), by="bob", reason="they asked us to")
    begin(letters)
    operation = advance_to("stopped")
    assert operation.note.startswith("breaker rank/rank_snapshot open until ")
    assert operation.done == 0

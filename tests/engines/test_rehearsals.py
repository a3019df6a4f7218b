"""Rehearsals on what real engines have recorded: computed by maintenance, kept with the version that was saved."""

import json
from datetime import timedelta
from importlib import import_module
from io import StringIO
from typing import Any
from unittest.mock import Mock

import pytest
from django.core.management import call_command
from django.db import OperationalError
from django.utils import timezone

from engines import policies, rehearsals
from engines.core.rehearsal import Rehearsal
from engines.core.states import State
from engines.models import Attempt, Pipeline, PolicyRehearsal, TransactionRecord
from engines.reads import recorded
from engines.worker.maintenance import all_chores
from ergon_site.access.models import AuditEntry
from tests.api.api_clients import client_with, post, problem
from tests.durable_transactions import make_policy, submit
from tests.engines.test_database_connector import ENGINES, drain
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db(transaction=True)


def body(direction: str = "inbound", **retry: Any) -> dict[str, Any]:
    step = "process" if direction == "inbound" else "produce"
    return {"loop": {"concurrency": {"value": 4}, "batch": {"size": 20}}, "steps": {step: {"retry": retry}}}


@pytest.fixture
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    """A pipeline that has run: 5 succeeded at once, 2 at the third attempt, 3 failed three times, 1 was refused."""
    import_module("tests.tasks")
    task, direction = getattr(request, "param", ("tests.act", "inbound"))
    kind = "consumer" if direction == "inbound" else "producer"
    make_policy("patient", body(direction, max_attempts=3, backoff=0.01), kind)
    made = make_pipeline(task=task, direction=direction, policy="patient")
    submit(made, 5)
    submit(made, 2, **{"at": 3, "return": "at last"})
    submit(made, 3, fail="no answer")
    submit(made, 1, reject="no such order")
    drain(made)
    return made


def total(result: Any) -> Rehearsal:
    return Rehearsal.from_dict(result["total"])


@pytest.mark.parametrize("pipeline", ENGINES, indirect=True)
def test_the_policy_that_was_in_force_reproduces_what_real_engines_recorded(pipeline: Pipeline) -> None:
    policy = policies.find("patient")
    told = total(rehearsals.rehearse(policy, policy.in_force.policy.to_dict()))
    assert (told.transactions, told.left_out, told.changed, told.unknown) == (11, 0, 0, ())
    assert told.recorded == told.rehearsed
    assert (told.recorded.attempts, told.recorded.dead_letters) == (Attempt.objects.count(), 4) == (21, 4)
    more = total(rehearsals.rehearse(policy, body(pipeline.direction, max_attempts=4, backoff=0.01)))
    assert (more.rehearsed.attempts, more.rehearsed.dead_letters, more.maybe_saved) == (24, 1, 3)
    fewer = total(rehearsals.rehearse(policy, body(pipeline.direction, max_attempts=2)))
    assert (fewer.rehearsed.attempts, fewer.rehearsed.dead_letters, fewer.new_dead_letters) == (16, 6, 2)


def test_a_rehearsal_is_computed_by_maintenance_and_kept_with_the_version_that_was_saved(pipeline: Pipeline) -> None:
    policy, asked = policies.find("patient"), body(max_attempts=2)
    first = rehearsals.begin(policy, body(max_attempts=9), by="ada")
    mine = rehearsals.begin(policy, asked, by="ada")
    hers = rehearsals.begin(policy, asked, by="grace")
    assert rehearsals.begin(policy, asked, by="ada") == mine
    chores = {chore.name: chore for chore in all_chores(30.0)}
    assert [chores["rehearsed"].run() for _ in range(3)] == [1, 1, 0]
    states = {one.pk: one.state for one in PolicyRehearsal.objects.all()}
    assert states == {first.pk: "cancelled", mine.pk: "done", hers.pk: "done"}
    assert AuditEntry.objects.filter(action="policy.rehearse").count() == 3
    version = policies.write("patient", asked, by="grace", reason="fewer")
    kept = version.rehearsals.get()
    assert kept == hers
    assert total(kept.result).new_dead_letters == 2
    PolicyRehearsal.objects.update(created_at=timezone.now() - timedelta(days=2))
    chores["rehearsals_forgotten"].run()
    assert list(PolicyRehearsal.objects.all()) == [kept]


@pytest.mark.parametrize("end", ["another", "left"])
def test_a_rehearsal_that_nobody_waits_for_any_more_ends_before_the_next_pipeline(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    make_pipeline("second", policy="patient")
    policy, sampled = policies.find("patient"), []
    asked = rehearsals.begin(policy, body(max_attempts=2), by="ada")

    def sample(pipeline_id: int, **terms: Any) -> recorded.Sample:
        sampled.append(pipeline_id)
        if end == "another":
            rehearsals.begin(policy, body(max_attempts=5), by="ada")
        else:
            rehearsals.leave(asked, by="ada", asked_at=asked.created_at)
        return real(pipeline_id, **terms)

    real = recorded.sample
    # What happens while it is computed must happen at a known place.
    monkeypatch.setattr(recorded, "sample", sample)
    assert (rehearsals.advance(), sampled) == (0, [pipeline.pk])
    asked.refresh_from_db()
    assert (asked.state, asked.result) == ("cancelled", None)


def test_a_page_that_was_left_cancels_only_what_no_page_has_asked_for_since(pipeline: Pipeline) -> None:
    policy, wanted = policies.find("patient"), body(max_attempts=2)
    first = rehearsals.begin(policy, wanted, by="ada")
    again = rehearsals.begin(policy, wanted, by="ada")
    assert again == first
    assert rehearsals.leave(first, by="ada", asked_at=first.created_at) == 0
    assert rehearsals.leave(again, by="grace", asked_at=again.created_at) == 0
    assert rehearsals.leave(again, by="ada", asked_at=again.created_at) == 1
    assert rehearsals.advance() == 0


def test_what_was_interrupted_or_is_older_than_a_day_is_no_part_of_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, same = policies.find("patient"), body(max_attempts=3, backoff=0.01)
    rescued, old, cut = TransactionRecord.objects.order_by("id")[:3]
    TransactionRecord.objects.filter(pk=rescued.pk).update(rescues=1)
    TransactionRecord.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(hours=25))
    Attempt.objects.filter(transaction_id=cut.pk).update(policy_version=None)
    told = total(rehearsals.rehearse(policy, same))
    assert (told.transactions, told.left_out) == (8, 2)
    TransactionRecord.objects.filter(state=State.FAILED.value).update(created_at=timezone.now())
    monkeypatch.setattr(rehearsals, "MOST", 4)
    result = rehearsals.rehearse(policy, same)
    assert (total(result).transactions, result["pipelines"][0]["is_capped"]) == (4, True)
    assert total(result).recorded.dead_letters == 4


def test_a_rehearsal_that_cannot_be_computed_says_why_and_the_next_one_is(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = rehearsals.begin(policies.find("patient"), {}, by="ada")
    PolicyRehearsal.objects.filter(pk=broken.pk).update(body={"loop": {"limit": 0}})
    good = rehearsals.begin(policies.find("patient"), {}, by="grace")
    assert [rehearsals.advance(), rehearsals.advance()] == [1, 1]
    broken.refresh_from_db()
    good.refresh_from_db()
    assert (broken.state, good.state) == ("failed", "done")
    assert "ConsumerPolicy.loop.limit must be" in broken.note
    asked = rehearsals.begin(policies.find("patient"), {"loop": {"limit": 9}}, by="ada")
    # A fake, for what nobody has thought of; and a database that is away is no reason to give up.
    monkeypatch.setattr(recorded, "sample", Mock(side_effect=[OperationalError("gone"), KeyError("step")]))
    with pytest.raises(OperationalError):
        rehearsals.advance()
    asked.refresh_from_db()
    assert asked.state == "waiting"
    rehearsals.advance()
    asked.refresh_from_db()
    assert (asked.state, asked.note) == ("failed", "'step'")


def test_the_api_and_the_command_rehearse_as_the_console_does(pipeline: Pipeline, tmp_path: Any) -> None:
    api = client_with("policies:read", "policies:write")
    asked = body(max_attempts=2)
    answer = post(api, "policies/patient/rehearsals", {"policy": asked})
    assert (answer.status_code, answer.json()["state"], answer.json()["result"]) == (202, "waiting", None)
    rehearsals.advance()
    address = f"/api/v1/policies/patient/rehearsals/{answer.json()['id']}"
    told = api.get(address).json()
    assert (told["state"], told["version"], "examples" in told["result"]) == ("done", None, False)
    assert total(told["result"]).new_dead_letters == 2
    problem(api.get(address.replace("patient", "default")), 404, "rehearsal_unknown")
    wrong = {"policy": {"loop": {"limit": 0}}}
    problem(post(api, "policies/patient/rehearsals", wrong), 400, "invalid_policy")
    file, out = tmp_path / "policy.json", StringIO()
    file.write_text(json.dumps(asked | {"park_after": 5}))
    call_command("policy", "rehearse", "patient", file=str(file), stdout=out)
    assert "Rehearsed with 11 transactions of orders from the last 24 hours." in out.getvalue()
    assert "2 transactions that succeeded would have become dead letters." in out.getvalue()
    assert "no record tells what it would do: park_after." in out.getvalue()
    out = StringIO()
    call_command("policy", "rehearse", "patient", file=str(file), json=True, stdout=out)
    assert json.loads(out.getvalue())["total"] == told["result"]["total"]
    assert policies.find("patient").active.number == 1  # type: ignore[union-attr]

"""Pipelines that take their transactions from a broker: live policies, counts, and failures that nobody loses."""

import os
import time
import uuid
from importlib import import_module

import pytest

from engines import Transaction, policies, transactions
from engines.connectors.broker import BrokerConnector
from engines.models import DeadLetter, Pipeline
from engines.reads import status
from engines.worker.pipeline import Options
from engines.worker.process import WorkerProcess
from tests.durable_transactions import make_policy
from tests.engines.test_database_connector import wait_for
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pipeline() -> Pipeline:
    import_module("tests.tasks")
    return make_pipeline(f"queue-{uuid.uuid4().hex[:8]}", connector="broker", policy=make_policy())


def publish(pipeline: Pipeline, *payloads: dict[str, object]) -> None:
    connector = BrokerConnector(os.environ["CELERY_BROKER_URL"], pipeline.name)
    sent = [Transaction(f"m{number}", payload) for number, payload in enumerate(payloads)]
    connector.dispatch_transactions(sent)
    connector.close()


def ended(pipeline: Pipeline) -> tuple[int, int]:
    totals = status.totals_by_pipeline().get(pipeline.pk, {})
    return totals.get("succeeded", 0), totals.get("failed", 0)


@pytest.mark.parametrize("task", ["tests.act", "tests.act_async"])
def test_messages_run_and_a_failure_becomes_a_dead_letter_that_can_be_replayed(task: str, pipeline: Pipeline) -> None:
    Pipeline.objects.update(task=task)
    pipeline.refresh_from_db()
    publish(pipeline, {"n": 1}, {"fail": "broken"}, {"n": 2})
    with WorkerProcess([pipeline], Options()) as worker:
        wait_for(lambda: ended(pipeline) == (2, 1))
        letter = DeadLetter.objects.get()
        assert (letter.uid, letter.error_type, letter.payload) == ("m1", "ValueError", {"fail": "broken"})
        assert letter.details["attempts"] == 1
        new = transactions.replay_letter(letter.pk, by="ada", reason="repaired", payload={"n": 3})
        wait_for(lambda: transactions.find(new).word == "succeeded")
        worker.stop()
        wait_for(lambda: not worker.is_running)
    assert worker.errors == []


def test_a_policy_edited_meanwhile_counts_for_messages_too(pipeline: Pipeline) -> None:
    with WorkerProcess([pipeline], Options()) as worker:
        body = {"steps": {"process": {"retry": {"max_attempts": 3}}}}
        version = policies.write("quick", body, by="ada", reason="tougher")
        wait_for(lambda: worker.runners[1].connector.policy_in_force()[1] == str(version.pk))
        publish(pipeline, {"fail": "broken"})
        wait_for(DeadLetter.objects.exists)
        time.sleep(0.1)
        worker.stop()
        wait_for(lambda: not worker.is_running)
    assert DeadLetter.objects.get().details["attempts"] == 3

"""`celery -A tests.providers.celery_tasks worker`: tasks of providers that do as they are told by what they are asked.

A payload holds a script, and a file where every call leaves a line. The n-th call does the n-th word of the script.
Run as a module, it asks once without a broker.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import django
from celery.signals import worker_process_init
from django.apps import apps
from django.db import connection

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()

from ergon_site.celery import app

if not apps.ready:
    django.setup()

from providers import BreakerPolicy, BulkheadPolicy, CeleryProviderTask, ProviderBase, RateLimit, RetryPolicy
from providers.core import errors

if visibility := os.environ.get("TEST_VISIBILITY"):
    app.conf.broker_transport_options = {
        "visibility_timeout": int(visibility),
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    }


@worker_process_init.connect
def _lose_what_is_sent(**_: Any) -> None:
    """The worker is delivered tasks, and its processes can send none."""
    if unwritable := os.environ.get("TEST_UNWRITABLE"):
        app.conf.broker_write_url = unwritable


QUEUE = "test.providers"
SECRET = "token=do-not-tell-anybody"


def lose_database(seconds: float) -> Callable[[], None]:
    """The database is away for so long, or until what this returns is called."""
    settings = connection.settings_dict
    there = dict(settings)
    connection.close()
    settings |= {"NAME": "nowhere", "HOST": "127.0.0.1", "PORT": "1"}
    timer = threading.Timer(seconds, settings.update, [there])
    timer.start()

    def restore() -> None:
        timer.cancel()
        settings.update(there)

    return restore


class Told(ProviderBase):
    """Does the next word of the script."""

    provider_name, capability = "told", "anything"
    retry_policy = RetryPolicy(max_attempts=3, base_delay_seconds=0.05, max_delay_seconds=0.1, jitter_ratio=0)
    idempotency_lease = 1.0

    def _execute_impl(self, *, payload: dict[str, Any], **_: Any) -> dict[str, Any]:
        log = Path(payload["log"])
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        number = len(log.read_text().splitlines())
        word = payload["script"][min(number, len(payload["script"])) - 1]
        kind, _, number = word.partition(":")
        match kind:
            case "lose":
                lose_database(float(number))
                raise errors.from_status(400)
            case "win":
                lose_database(float(number))
            case "slow":
                time.sleep(float(number))
            case "held":
                while not log.with_suffix(".go").exists():
                    time.sleep(0.05)
            case "timeout":
                raise TimeoutError(SECRET)
            case "status":
                raise errors.from_status(int(number), SECRET)
            case "pause":
                raise errors.from_status(429, SECRET, retry_after=float(number))
        return {"word": word, "answer": SECRET}


class Brittle(Told):
    """Its breaker opens at the first failure, for four seconds."""

    provider_name = "brittle"
    retry_policy = RetryPolicy(max_attempts=1)
    breaker_policy = BreakerPolicy(
        failure_threshold=1, open_cooldown_seconds=4, half_open_max_calls=1, success_threshold=1
    )


class BrittleForLong(Brittle):
    """Likewise, for forty seconds."""

    provider_name = "brittle_for_long"
    breaker_policy = replace(Brittle.breaker_policy, open_cooldown_seconds=40)


class Cushioned(Brittle):
    """Likewise, with an answer of its own."""

    provider_name = "cushioned"

    def fallback(self, request: Any, error: Any) -> dict[str, Any]:
        return {"word": "made up"}


class InTurn(Told):
    """One call at a time, and one in two seconds."""

    provider_name = "in_turn"
    bulkhead, rate_limit = BulkheadPolicy(1), RateLimit(0.5, 1)


class Patient(Told):
    """Whoever asks the same meanwhile waits for the answer."""

    provider_name = "patient"
    idempotency_wait = 20.0


class Queued(CeleryProviderTask):
    """Says its queue itself: routes of the app would be too late where somebody has sent a task before."""

    abstract = True
    queue = QUEUE


class Tell(Queued):
    name, provider, capability = "tests.tell", "told", "anything"


class TellInTime(Tell):
    """It has no time to wait for a database that is away."""

    name = "tests.tell_in_time"
    timeout_budget = 1.0


class TellHasty(Tell):
    name = "tests.tell_hasty"
    patience = 2.0


tell, tell_in_time, tell_hasty = (app.register_task(kind()) for kind in (Tell, TellInTime, TellHasty))


@app.task(base=Queued, name="tests.tell_brittle", provider="brittle", capability="anything")
def tell_brittle(*, tenant_id: str, operation: str, payload: dict[str, Any]) -> None:
    """What it is sent is what is asked."""


@app.task(base=Queued, name="tests.tell_brittle_for_long", provider=BrittleForLong)
def tell_brittle_for_long(*, tenant_id: str, operation: str, payload: dict[str, Any]) -> None:
    """Likewise."""


@app.task(base=Queued, name="tests.tell_cushioned", provider=Cushioned)
def tell_cushioned(*, tenant_id: str, operation: str, payload: dict[str, Any]) -> None:
    """Likewise."""


@app.task(base=Queued, name="tests.tell_in_turn", provider=InTurn)
def tell_in_turn(*, tenant_id: str, operation: str, payload: dict[str, Any]) -> None:
    """Likewise."""


@app.task(base=Queued, name="tests.tell_patient", provider=Patient)
def tell_patient(*, tenant_id: str, operation: str, payload: dict[str, Any]) -> None:
    """Likewise."""


@app.task(base=Queued, name="tests.tell_words", provider="told", capability="anything", bind=True)
def tell_words(task: CeleryProviderTask, tenant_id: str, *words: str, log: str) -> str:
    answer = task.ask(tenant_id=tenant_id, operation="tell", payload={"script": list(words), "log": log})
    return f"it said {answer['word']}"


if __name__ == "__main__":
    request = {"tenant_id": "t", "operation": "tell", "payload": {"script": sys.argv[2:], "log": sys.argv[1]}}
    result = tell.delay(**request)
    print(json.dumps([result.state, result.result if result.successful() else str(result.result)]))

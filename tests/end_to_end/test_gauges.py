"""`/metrics` tells what waits and what needs a person, read from the database as it is asked for."""

import pytest
from django.test import Client

from engines import pipelines
from tests.durable_transactions import claim, failed, settle, submit
from tests.factories import make_pipeline

pytestmark = pytest.mark.django_db


def test_metrics_tell_the_state_of_every_pipeline(client: Client) -> None:
    pipeline = make_pipeline()
    submit(pipeline, 5)
    settle(claim(pipeline, 1), failed())
    claim(pipeline, 1)
    pipelines.pause("orders", by="ada", reason="flood")
    exposed = client.get("/metrics").content.decode()
    assert 'ergon_pipeline_waiting{pipeline="orders"} 3.0' in exposed
    assert 'ergon_pipeline_running{pipeline="orders"} 1.0' in exposed
    assert 'ergon_pipeline_paused{pipeline="orders"} 1.0' in exposed
    assert "ergon_dead_letters_open 1.0" in exposed
    assert "ergon_workers_alive 2.0" in exposed
    assert "python_info" in exposed

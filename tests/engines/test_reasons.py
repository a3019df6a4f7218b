"""A reason may be equally long wherever it is given."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from engines.models import Pipeline
from tests.factories import make_pipeline
from tests.providers.scripted_providers import WHO

pytestmark = [pytest.mark.django_db, pytest.mark.once]

LONGEST = 1000


def by_command(reason: str, _console: Client, _token: str) -> None:
    with suppress(CommandError):
        call_command("pause", "orders", "--reason", reason)


def by_api(reason: str, _console: Client, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    body = {"reason": reason}
    Client(headers=headers).post("/api/v1/pipelines/orders/pause", body, content_type="application/json")


def by_console(reason: str, console: Client, _token: str) -> None:
    address = f"/admin/engines/pipeline/{Pipeline.objects.get().pk}/pause/"
    console.post(address, {"_form_submitted": "on", "reason": reason})


@pytest.mark.parametrize("pause", [by_command, by_api, by_console])
def test_the_longest_reason_is_the_same_for_commands_console_and_api(
    browse: Client, token: str, pause: Callable[[str, Client, str], None]
) -> None:
    make_pipeline()
    pause("x" * (LONGEST + 1), browse, token)
    assert not Pipeline.objects.get().is_paused
    pause("x" * LONGEST, browse, token)
    assert Pipeline.objects.get().pause_reason == "x" * LONGEST


@pytest.mark.parametrize(("length", "status"), [(LONGEST, 200), (LONGEST + 1, 400)])
def test_it_is_the_same_for_providers(token: str, length: int, status: int) -> None:
    tenant_id, provider_name, capability = WHO
    body = {"tenant_id": tenant_id, "action": "force-open", "reason": "x" * length}
    address = f"/api/v1/providers/{provider_name}/{capability}/override"
    api = Client(headers={"Authorization": f"Bearer {token}"})
    assert api.post(address, body, content_type="application/json").status_code == status

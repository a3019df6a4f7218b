"""Pages and the API tell times in UTC, whatever the time zone of the project is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from engines import transactions
from engines.models import TransactionRecord
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.database.clock import page_time
from providers.models import Gate
from tests.api.api_clients import client_with
from tests.console.records import exported, read
from tests.factories import GateFactory, make_pipeline

pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture(autouse=True)
def _in_berlin(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"


@pytest.fixture
def record() -> TransactionRecord:
    make_pipeline("orders")
    return transactions.find(transactions.submit("orders", {"a": 1}).id)


def test_a_page_tells_times_in_utc(browse: Client, record: TransactionRecord) -> None:
    page = read(browse, f"/admin/engines/transactionrecord/{record.pk}/change/")
    assert f"{record.created_at:%Y-%m-%d %H:%M:%S} UTC" in page


def test_a_form_shows_and_takes_times_in_utc(browse: Client) -> None:
    client = clients.create("erp", Grant(scopes=["platform"]), certificate="sha256:" + "a" * 64, by="tests").client
    page = f"/admin/access/apiclient/{client.pk}/change/"
    assert f'value="{client.certificate_expires_at:%H:%M:%S}"' in read(browse, page)
    given = {"scopes": ["platform"], "certificate": client.certificate, "certificate_expires_at_0": "2100-06-01"}
    given |= {"certificate_expires_at_1": "12:00:00", "tokens-TOTAL_FORMS": "0", "tokens-INITIAL_FORMS": "0"}
    assert browse.post(page, given).status_code == 302
    client.refresh_from_db()
    assert client.certificate_expires_at == datetime(2100, 6, 1, 12, tzinfo=UTC)


def test_a_dialog_takes_times_in_utc(browse: Client) -> None:
    until = (page_time() + timedelta(days=1)).replace(second=0, microsecond=0)
    told = {"_form_submitted": "on", "until": f"{until:%Y-%m-%dT%H:%M}", "reason": "maintenance"}
    browse.post(f"/admin/providers/gate/{GateFactory.create().pk}/force-open/", told)
    forced_until = Gate.objects.get().override_until
    assert forced_until is not None
    assert abs(forced_until - until.timestamp()) < 60


def test_an_export_tells_times_in_utc(browse: Client, record: TransactionRecord) -> None:
    (row,) = exported(browse, "/admin/engines/transactionrecord/export.json")
    assert row["created_at"].endswith("Z")


def test_the_api_tells_times_in_utc(record: TransactionRecord) -> None:
    api = client_with("transactions:read", "platform")
    (row,) = api.get("/api/v1/transactions").json()["results"]
    assert row["created_at"].endswith("Z")
    assert api.get("/api/v1/client").json()["expires_at"].endswith("Z")

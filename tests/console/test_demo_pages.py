"""The demo is an example: what it hides from viewers is hidden on all of its pages."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from engines.models import TransactionRecord
from ergon_site.demo import data
from tests.console.records import read

pytestmark = [pytest.mark.once, pytest.mark.django_db]


def test_a_viewer_of_the_demo_sees_no_iban(client: Client) -> None:
    data.fill("correct horse")
    client.force_login(User.objects.get(username="viewer"))
    pipelines = TransactionRecord.objects.filter(payload__has_key="iban").values_list("pipeline__name", flat=True)
    assert set(pipelines) == {"invoices", "archive"}
    for name in set(pipelines):
        record = TransactionRecord.objects.filter(pipeline__name=name).latest("pk")
        page = read(client, f"/admin/engines/transactionrecord/{record.pk}/change/")
        assert "customer" in page
        assert "5001 0517" not in page

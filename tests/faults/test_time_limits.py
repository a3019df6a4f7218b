"""A statement whose time is up is cancelled, and no other one."""

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from ergon_site.access.database import calls
from ergon_site.access.database.calls import DatabaseTimeoutError, time_limit
from tests.processes import LIMIT

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]


def test_a_request_to_cancel_that_comes_late_hits_no_later_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is in a transaction is not closed: whoever uses it next must be safe from that request."""
    is_late, is_over = threading.Event(), threading.Event()
    cancel = calls._cancel

    def cancel_late(given: Any) -> None:
        is_late.set()
        is_over.wait(LIMIT)
        cancel(given)

    def run_into_limit() -> None:
        with transaction.atomic(), time_limit(0.1), connection.cursor() as cursor:
            while not is_late.is_set():
                cursor.execute("SELECT pg_sleep(0.05)")
            is_over.set()

    monkeypatch.setattr(calls, "_cancel", cancel_late)
    monkeypatch.setattr(calls, "CANCEL_WITHIN", LIMIT)
    with pytest.raises(DatabaseTimeoutError):
        run_into_limit()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1)")

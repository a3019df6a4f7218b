"""Calls to providers as events of a timeline."""

from collections.abc import Collection
from datetime import timedelta

from django.db.models import Q

from ergon_site.access.core.timeline import MERGED, Event, Link
from providers.models import ProviderExecutionMetric


def events(ids: Collection[str]) -> list[Event]:
    """The attempts of calls that were made for these ids, by when they began; rows have when they ended."""
    # Not ordered here: the index on the id must not look worse than one in the order of time.
    made = ProviderExecutionMetric.objects.filter(Q(correlation_id__in=ids) | Q(transaction_id__in=ids))
    rows = made.order_by()[: MERGED + 1]
    return [
        Event(
            at=row.created_at - timedelta(milliseconds=row.duration_ms),
            kind="call",
            title=f"Call to {row.provider_name} {row.capability}: {row.operation}",
            outcome=row.outcome,
            duration=row.duration_ms / 1000,
            note=", ".join(_notes(row)),
            target=Link(f"attempt {row.pk}", "providers_providerexecutionmetric", str(row.pk)),
        )
        for row in rows
    ]


def _notes(row: ProviderExecutionMetric) -> list[str]:
    told = [f"attempt {row.attempt_number} of {row.max_attempts}", row.reason_code]
    told += [
        f"HTTP {row.http_status}" if row.http_status else "",
        "retry budget used up" if row.retry_suppressed else "",
    ]
    return [text for text in told if text]

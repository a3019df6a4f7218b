"""Attention items of the database: holders of old snapshots."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from django.db import connection
from django.db.models import QuerySet, TextField, Value
from django.db.models.expressions import RawSQL
from django.urls import reverse

from engines.models import Pipeline
from engines.reads import old_snapshots
from engines.reads.old_snapshots import Holder
from ergon_site.dashboard.attention import SHOWN_OF_A_KIND, Concern, capped


def rows() -> Iterator[QuerySet[Any, Any]]:
    """Sessions with old snapshots, as text with a kind and a key; queried together with others."""
    if connection.vendor == "postgresql":
        statement, parameters = old_snapshots.as_json(most=2 * SHOWN_OF_A_KIND)
        holders = RawSQL(statement, parameters, output_field=TextField())  # noqa: S611 (our own)
        # A statement of Django's is about a table. Where there is no pipeline, there are no claims to slow down.
        one_row = Pipeline.objects.filter(pk__in=Pipeline.objects.order_by("pk").values("pk")[:1])
        yield one_row.order_by().annotate(kind=Value("snapshots"), row=holders).values_list("kind", "pk", "row")


def concerns(texts: Iterable[str]) -> Iterator[Concern]:
    holders = (Holder(**one) for text in texts for one in json.loads(text))
    yield from capped(_old_snapshots(holders), reverse("admin:index"))


def _old_snapshots(holders: Iterable[Holder]) -> Iterator[Concern]:
    for holder in holders:
        detail = f"{holder.detail.capitalize()}. Claims get slower meanwhile: {holder.remedy}"
        yield Concern(title=holder.title, detail=detail, address=reverse("admin:index"))

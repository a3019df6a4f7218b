"""Looking into payloads: row by row, and only so far."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTransform

from engines.core import redaction
from engines.models import Pipeline, TransactionRecord
from engines.reads.filters import ListingError
from engines.reads.prefix_search import all_of, any_of
from ergon_site.access.core import json_text
from ergon_site.access.keyset import KeysetQuery

LOOKED_INTO = 10_000
DEEPEST_PATH = 20
IN_PAYLOAD = re.compile(r"payload\.([^:]+):(.*)", re.DOTALL)
BACKWARDS = re.compile(r"\s*-\s*\d+\s*")


def look_into(
    payload: re.Match[str],
    rows: QuerySet[TransactionRecord],
    order: tuple[str, ...],
    conditions: Mapping[str, Q],
    pipelines: Iterable[Pipeline],
) -> KeysetQuery:
    """Transactions whose payload holds a value at a path; never where the pipeline hides that path."""
    path, value = payload[1].strip(), payload[2].strip()
    parts = path.split(".")
    if len(parts) > DEEPEST_PATH or any(BACKWARDS.fullmatch(part) for part in parts):
        msg = f"a path into a payload has at most {DEEPEST_PATH} parts, and places in lists count from 0"
        raise ListingError(msg)
    hidden = [pipeline.pk for pipeline in pipelines if redaction.covers(pipeline.redacted, path)]
    place: Any = "payload"
    for part in parts:
        place = KeyTransform(part, place)
    found = any_of(Q(found=candidate) for candidate in _candidates(value))
    rest = found & ~Q(pipeline_id__in=hidden) & all_of(conditions.values())
    return KeysetQuery(rows=rows.alias(found=place), order=order, rest=rest, window=LOOKED_INTO)


def _candidates(value: str) -> list[Any]:
    """`42` may be a number or a text; the address does not say which."""
    try:
        parsed = json_text.parse(value.encode())
    except json_text.MalformedJSONError:
        return [value]
    return [value, parsed] if isinstance(parsed, int | float | str) else [value]

"""Lists by what their addresses ask for, written so that an index answers each of them."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from django.db.models import Model, Q, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError

from engines import pipelines
from engines.api import times
from engines.core.errors import ExceptionType
from engines.core.states import CATEGORIES, GroupState, LetterState, State
from engines.models import BulkOperation, DeadLetter, DeadLetterGroup, TransactionRecord

LONGEST = 200
LARGEST_KEY = 2**63 - 1
STATES = [state.word for state in State]
CATEGORY_NAMES = [category.value for category in ExceptionType]
LETTER_STATES = [state.value for state in LetterState]
GROUP_STATES = [state.value for state in GroupState]
OPERATION_STATES = [state for state, _ in BulkOperation.STATES]
# Each of the three has its partial index; without them, the transactions of a quiet pipeline would be looked for
# among all the others.
INDEXED = Q(state=State.PENDING.value) | Q(lease_expires_at__isnull=False) | Q(finished_at__isnull=False)

Parameters = Mapping[str, str]
Filters = Mapping[str, Callable[[str], Q]]
Row = TypeVar("Row", bound=Model)

FOR_TRANSACTIONS = [
    OpenApiParameter("state", str, enum=STATES),
    OpenApiParameter("pipeline", str, description="The name of the pipeline."),
    OpenApiParameter("category", str, enum=CATEGORY_NAMES, description="The category of the failure."),
    OpenApiParameter("correlation_id", str),
    OpenApiParameter("id", str),
    OpenApiParameter("created_after", datetime, description="At this time or later."),
    OpenApiParameter("created_before", datetime, description="Before this time."),
]
FOR_DEAD_LETTERS = [
    OpenApiParameter("state", str, enum=LETTER_STATES),
    OpenApiParameter("source", str, description="The pipeline or provider that failed."),
    OpenApiParameter("category", str, enum=CATEGORY_NAMES),
    OpenApiParameter("group", int, description="The number of the dead-letter group."),
]
FOR_GROUPS = [
    OpenApiParameter("state", str, enum=GROUP_STATES),
    OpenApiParameter("source", str, description="The pipeline or provider that failed."),
    OpenApiParameter("category", str, enum=CATEGORY_NAMES),
]
FOR_OPERATIONS = [
    OpenApiParameter("state", str, enum=OPERATION_STATES),
    OpenApiParameter("group", int, description="The number of the dead-letter group."),
]


def transactions(parameters: Parameters) -> QuerySet[TransactionRecord]:
    return _filtered(TransactionRecord.objects.select_related("pipeline"), parameters, TRANSACTION_FILTERS)


def dead_letters(parameters: Parameters) -> QuerySet[DeadLetter]:
    return _filtered(DeadLetter.objects.select_related("group"), parameters, LETTER_FILTERS)


def groups(parameters: Parameters) -> QuerySet[DeadLetterGroup]:
    return _filtered(DeadLetterGroup.objects.all(), parameters, GROUP_FILTERS)


def operations(parameters: Parameters) -> QuerySet[BulkOperation]:
    return _filtered(BulkOperation.objects.all(), parameters, OPERATION_FILTERS)


def _filtered(rows: QuerySet[Row], parameters: Parameters, known: Filters) -> QuerySet[Row]:
    for name, condition in known.items():
        if name in parameters:
            rows = rows.filter(_asked(parameters, name, condition))
    return rows


def _asked(parameters: Parameters, name: str, condition: Callable[[str], Q]) -> Q:
    try:
        return condition(parameters[name])
    except ValueError as error:
        raise ValidationError({name: str(error)}) from None


def _state(word: str) -> Q:
    state = State(STATES.index(_one_of(STATES, word)))
    if state.is_final:
        return Q(state=state.value, finished_at__isnull=False)
    return Q(state=state.value) if state is State.PENDING else Q(state=state.value, lease_expires_at__isnull=False)


def _pipeline(name: str) -> Q:
    return Q(pipeline_id=pipelines.find(_text(name)).pk) & INDEXED


def _category(word: str) -> Q:
    number = CATEGORIES[ExceptionType(_one_of(CATEGORY_NAMES, word))]
    return Q(state=State.FAILED.value, category=number)


def _group(text: str) -> Q:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(LARGEST_KEY)) or int(text) > LARGEST_KEY:
        msg = "This must be the number of a group."
        raise ValueError(msg)
    return Q(group_id=int(text))


def _one_of(words: list[str], word: str) -> str:
    if word not in words:
        msg = f"This must be one of {', '.join(words)}."
        raise ValueError(msg)
    return word


def _text(text: str) -> str:
    if not 0 < len(text) <= LONGEST or "\x00" in text:
        msg = f"This must be a text of 1 to {LONGEST} characters."
        raise ValueError(msg)
    return text


def _time(text: str) -> datetime:
    try:
        return times.instant(text)
    except ValueError:
        # In an address a plus sign is a space.
        return times.instant(text.replace(" ", "+"))


TRANSACTION_FILTERS: Filters = {
    "state": _state,
    "pipeline": _pipeline,
    "category": _category,
    "correlation_id": lambda text: Q(correlation_id=_text(text)),
    "id": lambda text: Q(uid=_text(text)),
    "created_after": lambda text: Q(created_at__gte=_time(text)),
    "created_before": lambda text: Q(created_at__lt=_time(text)),
}
LETTER_FILTERS: Filters = {
    "state": lambda word: Q(state=_one_of(LETTER_STATES, word)),
    "source": lambda text: Q(source=_text(text)),
    "category": lambda word: Q(category=_one_of(CATEGORY_NAMES, word)),
    "group": _group,
}
GROUP_FILTERS: Filters = {
    "state": lambda word: Q(state=_one_of(GROUP_STATES, word)),
    "source": lambda text: Q(source=_text(text)),
    "category": lambda word: Q(category=_one_of(CATEGORY_NAMES, word)),
}
OPERATION_FILTERS: Filters = {
    "state": lambda word: Q(state=_one_of(OPERATION_STATES, word)),
    "group": _group,
}

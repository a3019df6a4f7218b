"""Refusals of the verbs as problems: the only table of codes and HTTP statuses."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.http import JsonResponse
from rest_framework.exceptions import ValidationError

from engines.core.errors import EngineError, PolicyError
from engines.policies import StalePolicyError
from engines.reads.filters import ListingError
from engines.transactions import RefusedError, SubmissionError
from ergon_site.access.api import problems
from ergon_site.access.api.problems import Problem, escaped, fault
from ergon_site.access.api.schema import also_refuses
from ergon_site.access.core.texts import sentence

STATUSES = {
    "invalid_bulk_operation": HTTPStatus.BAD_REQUEST,
    "invalid_pipeline": HTTPStatus.BAD_REQUEST,
    "invalid_policy": HTTPStatus.BAD_REQUEST,
    "invalid_schedule": HTTPStatus.BAD_REQUEST,
    "invalid_transaction": HTTPStatus.BAD_REQUEST,
    "group_unknown": HTTPStatus.NOT_FOUND,
    "letter_unknown": HTTPStatus.NOT_FOUND,
    "operation_unknown": HTTPStatus.NOT_FOUND,
    "pipeline_unknown": HTTPStatus.NOT_FOUND,
    "policy_unknown": HTTPStatus.NOT_FOUND,
    "schedule_unknown": HTTPStatus.NOT_FOUND,
    "transaction_unknown": HTTPStatus.NOT_FOUND,
    "version_unknown": HTTPStatus.NOT_FOUND,
    "group_busy": HTTPStatus.CONFLICT,
    "id_taken": HTTPStatus.CONFLICT,
    "letter_settled": HTTPStatus.CONFLICT,
    "not_finished": HTTPStatus.CONFLICT,
    "not_pending": HTTPStatus.CONFLICT,
    "not_replayable": HTTPStatus.CONFLICT,
    "operation_state": HTTPStatus.CONFLICT,
    "pipeline_taken": HTTPStatus.CONFLICT,
    "schedule_taken": HTTPStatus.CONFLICT,
    "stale_policy": HTTPStatus.PRECONDITION_FAILED,
    "payload_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
}


def answers(shape: Any, *refusals: int, status: int = 200) -> dict[Any, Any]:
    """The OpenAPI responses of a view whose verb may refuse in ways of its own."""
    return {(status, "application/json"): shape, **also_refuses(*refusals)}


class Refusing:
    """A view whose verbs may refuse."""

    def get_exception_handler(self) -> Callable[[Exception, Mapping[str, Any]], JsonResponse | None]:
        return handle


def handle(error: Exception, context: Mapping[str, Any]) -> JsonResponse | None:
    code = getattr(error, "code", None)
    if isinstance(error, ListingError):
        error = ValidationError({error.field: str(error)})
    # What is not listed is a fault of ours.
    elif isinstance(error, EngineError) and code in STATUSES:
        detail = sentence(error)
        members: dict[str, Any] = {}
        headers: dict[str, str] = {}
        if pointer := _pointer(error):
            members["errors"] = [fault(pointer, detail, code)]
        if isinstance(error, StalePolicyError):
            members["version"] = error.active
            headers["ETag"] = f'"{error.active}"'
        error = Problem(STATUSES[code], code, detail, headers=headers, **members)
    return problems.handle(error, context)


def _pointer(error: EngineError) -> str:
    """The JSON pointer of the faulty field, if there is one."""
    match error:
        case PolicyError():
            return "".join(f"/{escaped(name)}" for name in ("policy", *error.path))
        case RefusedError(item=int()):
            return f"/transactions/{error.item}/{error.field}"
        case SubmissionError():
            return f"/{error.field}"
    return ""

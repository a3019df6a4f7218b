"""Refusals of the verbs as problems: the only table of codes and HTTP statuses."""

from http import HTTPStatus
from typing import Any

from rest_framework.exceptions import ValidationError

from engines.core.errors import EngineError, PolicyError
from engines.reads.filters import ListingError
from engines.transactions import RefusedError, SubmissionError
from ergon_site.access import api_identity
from ergon_site.access.api import conventions, problems
from ergon_site.access.api.schema import also_refuses
from ergon_site.access.api_identity import Caller

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
    "rehearsal_unknown": HTTPStatus.NOT_FOUND,
    "schedule_unknown": HTTPStatus.NOT_FOUND,
    "selection_unknown": HTTPStatus.NOT_FOUND,
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


class Refusing(conventions.Refusing):
    """A view whose verbs may refuse."""

    request: Any

    @property
    def caller(self) -> Caller:
        return api_identity.caller_of(self.request)

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, ListingError):
            return ValidationError({error.field: str(error)})
        # What is not listed is a fault of ours.
        status = STATUSES.get(getattr(error, "code", "")) if isinstance(error, EngineError) else None
        if status is None:
            return error
        pointer = ""  # to the faulty field, if there is one
        match error:
            case PolicyError():
                pointer = problems.pointer_to("policy", *error.path)
            case RefusedError(item=int()):
                pointer = f"/transactions/{error.item}/{error.field}"
            case SubmissionError():
                pointer = f"/{error.field}"
        return problems.refusal(status, error, pointer)

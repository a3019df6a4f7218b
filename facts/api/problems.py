"""Refusals of the boundary as problems: the only table of codes and HTTP statuses."""

from http import HTTPStatus
from typing import Any

from rest_framework.exceptions import (
    AuthenticationFailed,
    NotAuthenticated,
    ParseError,
    PermissionDenied,
    UnsupportedMediaType,
)

from ergon_site.access.api import conventions
from ergon_site.access.api.problems import PayloadTooLarge, Problem, fault
from ergon_site.access.core.texts import sentence
from facts import telemetry
from facts.core.errors import BufferFullError, FactError, NotAuthorizedError

STATUSES = {
    "invalid_fact": HTTPStatus.BAD_REQUEST,
    "invalid_provisioning": HTTPStatus.BAD_REQUEST,
    "zone_not_authorized": HTTPStatus.FORBIDDEN,
    "unknown_consumer": HTTPStatus.NOT_FOUND,
    "unknown_zone": HTTPStatus.NOT_FOUND,
    "unknown_boundary": HTTPStatus.NOT_FOUND,
    "unknown_fact": HTTPStatus.NOT_FOUND,
    "unknown_object": HTTPStatus.NOT_FOUND,
    "conflicting_duplicate": HTTPStatus.CONFLICT,
    "object_conflict": HTTPStatus.CONFLICT,
    "offset_out_of_range": HTTPStatus.CONFLICT,
    "history_truncated": HTTPStatus.GONE,
    "artifact_unavailable": HTTPStatus.GONE,
    "length_required": HTTPStatus.LENGTH_REQUIRED,
    "payload_too_large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "unknown_artifact": HTTPStatus.UNPROCESSABLE_ENTITY,
    "digest_mismatch": HTTPStatus.UNPROCESSABLE_ENTITY,
    "buffer_full": HTTPStatus.TOO_MANY_REQUESTS,
    "storage_unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
}

# What becomes of a body before there is a fact in it.
UNREAD = (ParseError, UnsupportedMediaType, PayloadTooLarge)


class Refusing(conventions.Refusing):
    """A view whose verbs may refuse."""

    required_scope: Any

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, FactError):
            return problem_of(error)
        if isinstance(error, NotAuthenticated | AuthenticationFailed | PermissionDenied):
            telemetry.auth_failures.add(1)
        if isinstance(error, UNREAD) and self.required_scope == "facts:append":
            telemetry.unread("invalid_fact" if isinstance(error, ParseError) else error.default_code)
        if isinstance(error, ParseError):
            # A body that is no JSON is no fact.
            return Problem(HTTPStatus.BAD_REQUEST, "invalid_fact", str(error.detail))
        return error


def problem_of(error: FactError) -> Problem:
    if isinstance(error, NotAuthorizedError):
        telemetry.auth_failures.add(1)
    detail = sentence(error.message)
    members: dict[str, Any] = {"errors": [fault(error.pointer, detail, error.code)]} if error.pointer else {}
    headers = {}
    if isinstance(error, BufferFullError):
        headers, members["retry_after"] = {"Retry-After": str(error.retry_after)}, error.retry_after
    return Problem(STATUSES[error.code], error.code, detail, headers=headers, **members)

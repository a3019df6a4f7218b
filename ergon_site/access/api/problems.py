"""Every error of the API as RFC 9457 `application/problem+json`, with a stable `code`."""

import logging
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied as DjangoPermissionDenied, RequestDataTooBig
from django.db import DatabaseError, InterfaceError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.template import loader
from django.views import defaults
from rest_framework import exceptions

from ergon_site.access.core.texts import sentence
from ergon_site.access.database import refusals
from ergon_site.access.idempotency import InFlightError, KeyReusedError
from ergon_site.access.policies.errors import StalePolicyError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
UNAVAILABLE = "The database is busy or unavailable: try again."
NO_CHANGES = "The database takes no changes: it is read-only, or its disk is full."
OUR_CODES = {
    "not_authenticated": "unauthenticated",
    "authentication_failed": "unauthenticated",
    "parse_error": "malformed_request",
    "invalid": "invalid_request",
}


class PayloadTooLarge(exceptions.APIException):
    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_code = "payload_too_large"
    default_detail = "The body is too large."


class Problem(exceptions.APIException):
    """A refusal with a status and a code of its own; `members` are added to the document."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail, code)
        self.status_code, self.default_code = status, code
        self.headers, self.members = dict(headers or {}), members


def refusal(status: int, error: Any, pointer: str = "", **members: Any) -> Problem:
    """What a verb has refused, under the code of its error; with a pointer, at that field."""
    detail, headers = sentence(error), {}
    if pointer:
        members["errors"] = [fault(pointer, detail, error.code)]
    if isinstance(error, StalePolicyError):
        members["version"], headers["ETag"] = error.active, f'"{error.active}"'
    return Problem(status, error.code, detail, headers=headers, **members)


def handle(error: Exception, _context: Mapping[str, Any]) -> JsonResponse | None:
    """The framework's exception handler; what it cannot name becomes a 500 outside."""
    error = _translated(error)
    if not isinstance(error, exceptions.APIException):
        return None
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    if header := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(wait)
    # Rendered here: whatever the view would have answered in, its problems are JSON.
    return JsonResponse(document(error), status=error.status_code, headers=headers, content_type=MEDIA_TYPE)


def document(error: exceptions.APIException) -> dict[str, Any]:
    code = OUR_CODES.get(error.default_code, error.default_code)
    if isinstance(error, exceptions.ValidationError):
        faults = list(_faults(error.detail))
        detail = faults[0]["detail"] if len(faults) == 1 else f"{len(faults)} fields are wrong."
        return _problem(error.status_code, code, detail) | {"errors": faults}
    return _problem(error.status_code, code, str(error.detail)) | getattr(error, "members", {})


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    told = _problem(HTTPStatus.BAD_REQUEST, "malformed_request", "The request could not be understood.")
    return _for_machines(request, told) or defaults.bad_request(request, exception)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    told = _problem(HTTPStatus.FORBIDDEN, "permission_denied", "You do not have permission to do this.")
    return _for_machines(request, told) or defaults.permission_denied(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    told = _problem(HTTPStatus.NOT_FOUND, "not_found", "There is no such resource.")
    return _for_machines(request, told) or defaults.page_not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """What no view has answered, also the error of a database that is away when a session is read."""
    error = sys.exception()
    if isinstance(error, DatabaseError | InterfaceError) and refusals.is_unavailable(error):
        status = HTTPStatus.SERVICE_UNAVAILABLE
        told = _problem(status, "unavailable", UNAVAILABLE)
        answer = _for_machines(request, told) or HttpResponse(loader.render_to_string("503.html"), status=status)
        answer.headers["Retry-After"] = "1"
        return answer
    detail = "An unexpected error occurred; it has been logged."
    told = _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", detail)
    return _for_machines(request, told) or defaults.server_error(request)


def _translated(error: Exception) -> Exception:
    match error:
        case Http404():
            return exceptions.NotFound()
        case DjangoPermissionDenied():
            return exceptions.PermissionDenied()
        case RequestDataTooBig():
            return PayloadTooLarge()
        case UnreadablePostError():
            return exceptions.ParseError("The body ended too early.")
        case DatabaseError() | InterfaceError() if refusals.is_unavailable(error):
            # A lost connection, a deadlock, a lock that took too long: no fault of the request, and it passes.
            logger.warning("The database did not carry out a request", exc_info=error)
            is_full = refusals.takes_no_changes(error)
            detail = NO_CHANGES if is_full else UNAVAILABLE
            return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail, headers={"Retry-After": "1"})
        case KeyReusedError():
            return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, error.code, "This key was used for another request.")
        case InFlightError():
            wait = {"Retry-After": str(error.retry_after)}
            detail = "The first request with this key is still in progress: try again."
            return Problem(HTTPStatus.CONFLICT, error.code, detail, headers=wait)
    return error


def _faults(detail: Any, pointer: str = "") -> Iterator[dict[str, str]]:
    match detail:
        case dict():
            for name, inner in detail.items():
                yield from _faults(inner, pointer if name == "non_field_errors" else pointer + pointer_to(name))
        case list() if any(isinstance(inner, dict | list) for inner in detail):
            for index, inner in enumerate(detail):
                yield from _faults(inner, f"{pointer}/{index}")
        case list():
            for inner in detail:
                yield from _faults(inner, pointer)
        case _:
            yield fault(pointer, str(detail), getattr(detail, "code", "invalid"))


def fault(pointer: str, detail: str, code: str) -> dict[str, str]:
    return {"pointer": pointer, "detail": detail, "code": code}


def pointer_to(*names: object) -> str:
    """The JSON Pointer that leads through these names."""
    return "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)


def _problem(status: int, code: str, detail: str) -> dict[str, Any]:
    return {
        "type": f"urn:ergon:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "code": code,
    }


def _for_machines(request: HttpRequest, problem: dict[str, Any]) -> JsonResponse | None:
    """The problem as an answer to a call of the API; None for a person, who gets a page."""
    is_called = request.path.startswith("/api/")
    return JsonResponse(problem, status=problem["status"], content_type=MEDIA_TYPE) if is_called else None

"""Refusals of the verbs as problems."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.http import JsonResponse

from engines.core.errors import PolicyError
from ergon_site.access.api import problems
from ergon_site.access.api.problems import Problem, escaped, fault
from ergon_site.access.core.texts import sentence
from ergon_site.access.policies.errors import PolicyRefusal, StalePolicyError
from providers.calls import OrderError

# Names of the verbs' arguments that bodies call otherwise.
FIELDS = {"lasting": "seconds", "provider_name": "", "capability": ""}


STATUSES = {
    "invalid_policy": HTTPStatus.BAD_REQUEST,
    "policy_unknown": HTTPStatus.NOT_FOUND,
    "version_unknown": HTTPStatus.NOT_FOUND,
}


class Refusing:
    """A view whose verbs may refuse."""

    def get_exception_handler(self) -> Callable[[Exception, Mapping[str, Any]], JsonResponse | None]:
        return handle


def handle(error: Exception, context: Mapping[str, Any]) -> JsonResponse | None:
    translated: Exception = error
    match error:
        case OrderError():
            field = FIELDS.get(error.field or "", error.field)
            translated = _problem(HTTPStatus.BAD_REQUEST, error, f"/{field}" if field else "")
        case PolicyError():
            pointer = "".join(f"/{escaped(name)}" for name in ("policy", *error.path))
            translated = _problem(HTTPStatus.BAD_REQUEST, error, pointer)
        case StalePolicyError():
            tag = {"ETag": f'"{error.active}"'}
            status = HTTPStatus.PRECONDITION_FAILED
            translated = Problem(status, error.code, sentence(error), headers=tag, version=error.active)
        case PolicyRefusal() if error.code in STATUSES:
            translated = _problem(STATUSES[error.code], error)
    return problems.handle(translated, context)


def _problem(status: HTTPStatus, error: Any, pointer: str = "") -> Problem:
    detail = sentence(error)
    members: dict[str, Any] = {"errors": [fault(pointer, detail, error.code)]} if pointer else {}
    return Problem(status, error.code, detail, **members)

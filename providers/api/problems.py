"""What the verbs refuse, as problems."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from django.http import JsonResponse

from ergon_site.access.api import problems
from ergon_site.access.api.problems import Problem, fault
from providers.calls import OrderError

# Names of the verbs' arguments that bodies call otherwise.
FIELDS = {"lasting": "seconds", "provider_name": "", "capability": ""}


class Refusing:
    """A view whose verbs may refuse."""

    def get_exception_handler(self) -> Callable[[Exception, Mapping[str, Any]], JsonResponse | None]:
        return handle


def handle(error: Exception, context: Mapping[str, Any]) -> JsonResponse | None:
    return problems.handle(_problem(error) if isinstance(error, OrderError) else error, context)


def _problem(error: OrderError) -> Problem:
    text = str(error)
    detail = f"{text[:1].upper()}{text[1:]}."
    field = FIELDS.get(error.field or "", error.field)
    members: dict[str, Any] = {"errors": [fault(f"/{field}", detail, error.code)]} if field else {}
    return Problem(HTTPStatus.BAD_REQUEST, error.code, detail, **members)

"""Refusals of the verbs as problems."""

from http import HTTPStatus

from engines.core.errors import PolicyError
from ergon_site.access.api import conventions, problems
from ergon_site.access.policies.errors import PolicyRefusal
from providers.calls import OrderError

# Names of the verbs' arguments that bodies call otherwise.
FIELDS = {"lasting": "seconds", "provider_name": "", "capability": ""}
STATUSES = {
    "invalid_policy": HTTPStatus.BAD_REQUEST,
    "policy_unknown": HTTPStatus.NOT_FOUND,
    "version_unknown": HTTPStatus.NOT_FOUND,
    "stale_policy": HTTPStatus.PRECONDITION_FAILED,
}


class Refusing(conventions.Refusing):
    """A view whose verbs may refuse."""

    def translate(self, error: Exception) -> Exception:
        match error:
            case OrderError():
                field = FIELDS.get(error.field or "", error.field)
                return problems.refusal(HTTPStatus.BAD_REQUEST, error, f"/{field}" if field else "")
            case PolicyError():
                return problems.refusal(HTTPStatus.BAD_REQUEST, error, problems.pointer_to("policy", *error.path))
            case PolicyRefusal() if error.code in STATUSES:
                return problems.refusal(STATUSES[error.code], error)
        return error

"""What every operation can answer besides its own results, said once for the whole OpenAPI document."""

from http import HTTPStatus
from typing import Any

from ergon_site.access.api.problems import MEDIA_TYPE

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Stable; programs decide by this."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail", "code"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON Pointer to the field at fault."},
                    "detail": {"type": "string"},
                    "code": {"type": "string"},
                },
            },
        },
    },
}
REFERENCE = {"$ref": "#/components/schemas/Problem"}
ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_ACCEPTABLE,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
WITH_BODY = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def also_refuses(*statuses: int) -> dict[tuple[int, str], dict[str, str]]:
    """Problems that only some operations answer, for their `responses`."""
    return {(status, MEDIA_TYPE): REFERENCE for status in statuses}


def add_problems(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Give every operation the problems that it can answer."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM
    for operations in result["paths"].values():
        for operation in operations.values():
            for status in ALWAYS + (WITH_BODY if "requestBody" in operation else ()):
                operation["responses"].setdefault(str(int(status)), _response(status))
    return result


def _response(status: HTTPStatus) -> dict[str, Any]:
    return {
        "description": status.phrase,
        "content": {MEDIA_TYPE: {"schema": REFERENCE}},
    }

"""The OpenAPI document: how it is served, and what every operation can answer besides its own results."""

from http import HTTPStatus
from threading import Lock
from typing import Any

from django.http import HttpResponse
from django.utils.encoding import force_bytes
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from ergon_site.access.api.problems import MEDIA_TYPE

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Stable; meant for programs."},
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


_rendered: dict[str, bytes] = {}
_rendering = Lock()


class SchemaView(SpectacularAPIView):
    """The document, made once in each process and form: it is open to all, and to make it takes long.

    It says nothing of a deployment but its limits, and nothing in a request changes it.
    """

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        with _rendering:
            if renderer.media_type not in _rendered:
                document = self.generator_class().get_schema(request=request, public=True)  # type: ignore[no-untyped-call]
                _rendered[renderer.media_type] = force_bytes(renderer.render(document, renderer_context={}))
        headers = {"Content-Disposition": f'inline; filename="ergon.{renderer.format}"'}
        return HttpResponse(_rendered[renderer.media_type], content_type=renderer.media_type, headers=headers)


def forget() -> None:
    """Make the document anew when it is next asked for."""
    _rendered.clear()


def also_refuses(*statuses: int) -> dict[tuple[int, str], dict[str, str]]:
    """Problems that only some operations answer, for their `responses`."""
    return {(status, MEDIA_TYPE): REFERENCE for status in statuses}


def add_problems(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Give every operation the problems that it can answer."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM
    for operations in result["paths"].values():
        for operation in operations.values():
            for status in ALWAYS + (WITH_BODY if "requestBody" in operation else ()):
                answer = {"description": status.phrase, "content": {MEDIA_TYPE: {"schema": REFERENCE}}}
                operation["responses"].setdefault(str(int(status)), answer)
    return result

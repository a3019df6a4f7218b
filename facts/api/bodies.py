"""The body of an upload: where to read it, and what was announced of it."""

from typing import Any

from rest_framework.request import Request

from facts.artifacts import Announced
from facts.core import artifacts as rules
from facts.core.errors import InvalidFactError, LengthRequiredError


def body_of(request: Request) -> tuple[Any, Announced]:
    if "Content-Range" in request.headers:
        msg = "an artifact is uploaded as a whole, not in parts"
        raise InvalidFactError(msg, "/Content-Range")
    header = request.headers.get("Content-Digest")
    digest = rules.digest_in(header) if header else None
    length = request.headers.get("Content-Length", "")
    if length.isdecimal():
        return request, Announced(int(length), digest)
    return _unmeasured(request), Announced(None, digest, is_whole=digest is not None)


def _unmeasured(request: Request) -> Any:
    """A chunked body. Django reads none from WSGI; a server that marks its stream as ended can be read directly."""
    if "wsgi.input" not in request.META:
        return request
    if not request.META.get("wsgi.input_terminated"):
        msg = "the web server hands on no body without a Content-Length"
        raise LengthRequiredError(msg)
    return request.META["wsgi.input"]

"""Artifacts over HTTP: put, get. Bodies are raw bytes of any media type, and pass through in chunks."""

from contextlib import suppress
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header, parse_etags, quote_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.problems import Problem
from ergon_site.access.api.schema import also_refuses
from ergon_site.access.streaming import StreamedAnswer
from facts import artifacts
from facts.api import rights
from facts.api.facts import JSON, answer
from facts.api.problems import Refusing
from facts.api.serializers import ObjectSerializer
from facts.artifacts import Announced
from facts.core import artifacts as rules
from facts.core.errors import InvalidFactError, LengthRequiredError, StorageUnavailableError
from facts.core.ranges import Span, UnsatisfiableError, span_in
from facts.models import Artifact

ANY = "*/*"
BUCKET = OpenApiParameter("bucket", {"type": "string", "pattern": f"^{rules.BUCKET.pattern}$"}, OpenApiParameter.PATH)
KEY = OpenApiParameter(
    "key",
    {"type": "string", "minLength": 1, "maxLength": rules.LONGEST_KEY},
    OpenApiParameter.PATH,
    description="May contain slashes; no part between them may be empty, . or ..",
)
RANGE = OpenApiParameter("Range", str, OpenApiParameter.HEADER, description="One range of bytes, as in bytes=0-1023.")
DIGEST = OpenApiParameter(
    "Content-Digest",
    str,
    OpenApiParameter.HEADER,
    description="sha-256=:BASE64: of the body (RFC 9530). Bytes that do not match are refused.",
)
TOLD = ("bucket", "key", "digest", "size", "media_type")
CHUNK, READ_OUT = 2**16, 2**25


class AnyMediaType(BaseContentNegotiation):
    """Bytes are answered as they are, whatever the client would rather have."""

    def select_renderer(self, request: Any, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type

    def select_parser(self, request: Any, parsers: Any) -> None:
        return None


class ObjectView(Refusing, APIView):
    """PutObject: written once by bucket and key. GET and HEAD: the bytes, with their digest, or a range of them."""

    required_scope = {"PUT": "objects:put", "GET": "objects:get"}
    content_negotiation_class = AnyMediaType
    parser_classes = []

    @extend_schema(
        operation_id="objects_put",
        description="PutObject: written once. The same bytes again get the same answer, others are refused.",
        parameters=[BUCKET, KEY, DIGEST],
        request={ANY: OpenApiTypes.BINARY},
        responses={(201, JSON): ObjectSerializer, (200, JSON): ObjectSerializer, **also_refuses(409, 411, 422)},
    )
    def put(self, request: Request, bucket: str, key: str) -> HttpResponse:
        _check(request, bucket, key)
        stream, announced = _body(request)
        try:
            stored = artifacts.put(
                bucket,
                key,
                stream,
                by=api_identity.caller_of(request).actor,
                media_type=request.headers.get("Content-Type") or rules.UNKNOWN_TYPE,
                announced=announced,
            )
        except StorageUnavailableError:
            _read_out(stream)
            raise
        told = {name: getattr(stored.artifact, name) for name in TOLD}
        return answer(told, status=HTTPStatus.CREATED if stored.is_new else HTTPStatus.OK)

    @extend_schema(
        operation_id="objects_get",
        description="The bytes with their digest, or a range of them. HEAD answers the same without bytes.",
        parameters=[BUCKET, KEY, RANGE],
        responses={
            (200, ANY): OpenApiResponse(OpenApiTypes.BINARY, "The bytes."),
            (206, ANY): OpenApiResponse(OpenApiTypes.BINARY, "The requested range."),
            304: OpenApiResponse(description="`If-None-Match` has this digest."),
            **also_refuses(410, 412, 416),
        },
    )
    def get(self, request: Request, bucket: str, key: str) -> HttpResponseBase:
        _check(request, bucket, key)
        artifact, condition = artifacts.find(bucket, key), request.headers.get("If-Range")
        # A client that has the beginning of something else needs the whole.
        is_part = condition is None or parse_etags(condition) == [_etag(artifact)]
        try:
            span = span_in(request.headers.get("Range", ""), artifact.size) if is_part else None
        except UnsatisfiableError:
            detail = f"The range starts after the end: the artifact has {artifact.size:,} bytes."
            headers = {"Content-Range": f"bytes */{artifact.size}", **_described(artifact)}
            status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
            raise Problem(status, "range_not_satisfiable", detail, headers=headers) from None
        status = HTTPStatus.OK if span is None else HTTPStatus.PARTIAL_CONTENT
        answered: Any = {"headers": _headers(artifact, span), "content_type": artifact.media_type}
        bare = HttpResponse(status=status, **answered)
        told: HttpRequest = request._request  # noqa: SLF001 (conditions are judged by Django)
        if (settled := get_conditional_response(told, etag=_etag(artifact), response=bare)) is not bare:
            return settled or bare
        if request.method == "HEAD":
            artifacts.check_there(artifact)
            return bare
        return StreamedAnswer(artifacts.open_slice(artifact, span), status=status, **answered)


def _check(request: Request, bucket: str, key: str) -> None:
    rules.check_name(bucket, key)
    rights.check_bucket(api_identity.caller_of(request), bucket)


def _body(request: Request) -> tuple[Any, Announced]:
    """The stream of an upload, and what its headers say about it."""
    if "Content-Range" in request.headers:
        msg = "an artifact is uploaded as a whole, not in parts"
        raise InvalidFactError(msg, "/Content-Range")
    header = request.headers.get("Content-Digest")
    digest = rules.digest_in(header) if header else None
    length = request.headers.get("Content-Length", "")
    if length.isdecimal():
        return request, Announced(int(length), digest)
    announced = Announced(None, digest, is_whole=digest is not None)
    if "wsgi.input" not in request.META:
        return request, announced
    # A chunked body. Django reads none from WSGI; a server that marks its stream as ended can be read directly.
    if not request.META.get("wsgi.input_terminated"):
        msg = "the web server hands on no body without a Content-Length"
        raise LengthRequiredError(msg)
    return request.META["wsgi.input"], announced


def _read_out(stream: Any) -> None:
    """Read what a client still sends, up to a bound: a connection that is closed before may lose it the answer."""
    with suppress(OSError):
        for _ in range(READ_OUT // CHUNK):
            if not stream.read(CHUNK):
                return


def _headers(artifact: Artifact, span: Span | None) -> dict[str, str]:
    length = artifact.size if span is None else span.length
    part = {"Content-Digest": rules.digest_header(artifact.digest)}
    if span is not None:
        part = {"Content-Range": f"bytes {span.start}-{span.stop - 1}/{artifact.size}"}
    file_name = artifact.key.rpartition("/")[2]
    disposition = content_disposition_header(as_attachment=True, filename=file_name) or "attachment"
    return {"Content-Length": str(length), "Content-Disposition": disposition, **part, **_described(artifact)}


def _described(artifact: Artifact) -> dict[str, str]:
    return {
        "ETag": _etag(artifact),
        "Repr-Digest": rules.digest_header(artifact.digest),
        "Accept-Ranges": "bytes",
        "X-Content-Type-Options": "nosniff",
    }


def _etag(artifact: Artifact) -> str:
    return quote_etag(artifact.digest.removeprefix(rules.PREFIX))

"""Facts over HTTP: append, batch append, look up."""

from collections.abc import Mapping
from copy import copy
from http import HTTPStatus
from typing import Any

import orjson
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api import problems
from ergon_site.access.api.bodies import freed
from ergon_site.access.api.parsers import BATCH_LIMIT, StrictJSONParser
from ergon_site.access.api.schema import also_refuses
from ergon_site.access.api_identity import Caller
from facts import ledger, telemetry
from facts.api import rights
from facts.api.problems import Refusing, problem_of
from facts.api.serializers import (
    AppendedSerializer,
    AppendResultsSerializer,
    FactBatchSerializer,
    FactSerializer,
    FoundSerializer,
)
from facts.conf import settings
from facts.core.errors import FactError, InvalidFactError, refuse
from facts.core.texts import has_controls
from facts.ledger import Appended, Entry

MOST = 1000
JSON = "application/json"


class FactsView(Refusing, APIView):
    """AppendFact: confirmed when answered, and stored once however often it is sent."""

    required_scope = "facts:append"
    parser_classes = [StrictJSONParser]

    @property
    def body_limit(self) -> int:
        return settings().body_limit

    @extend_schema(
        request=FactSerializer,
        responses={
            (201, JSON): AppendedSerializer,
            (200, JSON): AppendedSerializer,
            **also_refuses(409, 422),
        },
    )
    def post(self, request: Request) -> HttpResponse:
        entry = _prepared(api_identity.caller_of(request), request.data)
        if isinstance(entry, FactError):
            raise entry
        status, body = _told(ledger.append(entry))
        return answer(body, status=status)


class BatchView(Refusing, APIView):
    """Up to a thousand, each on its own: one that is refused does not keep the others."""

    required_scope = "facts:append"
    parser_classes = [StrictJSONParser]

    @property
    def body_limit(self) -> int:
        return max(BATCH_LIMIT, settings().body_limit)

    @extend_schema(request=FactBatchSerializer, responses=AppendResultsSerializer)
    def post(self, request: Request) -> HttpResponse:
        caller = api_identity.caller_of(request)
        with freed(request) as body:
            drafts = body.get("facts") if isinstance(body, dict) else None
            if not isinstance(drafts, list) or not 1 <= len(drafts) <= MOST:
                refuse("/facts", f"must be a list of 1 to {MOST:,} facts")
            refuse_others(body, "facts")
            prepared = [_prepared(caller, draft) for draft in drafts]
        appended = iter(ledger.append_many([one for one in prepared if isinstance(one, Entry)]))
        results = [next(appended) if isinstance(one, Entry) else one for one in prepared]
        return answer({"results": [_result(place, one) for place, one in enumerate(results)]})

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """A message may have this name."""
        return _found(request, "batch")


class FactView(Refusing, APIView):
    """Was it appended? For a producer that has been restarted."""

    required_scope = "facts:append"

    @extend_schema(
        parameters=[
            OpenApiParameter("message_id", str, OpenApiParameter.PATH, description="Percent-encoded."),
            OpenApiParameter("from_zone", str, required=True),
            OpenApiParameter("to_zone", str, required=True),
        ],
        responses={200: FoundSerializer, **also_refuses(410)},
    )
    def get(self, request: Request, message_id: str) -> HttpResponse:
        return _found(request, message_id)


def _found(request: Request, message_id: str) -> HttpResponse:
    zones = [request.GET.get(name, "") for name in ("from_zone", "to_zone")]
    for name, zone in zip(("from_zone", "to_zone"), zones, strict=True):
        if not zone:
            msg = f"the query needs {name}"
            raise InvalidFactError(msg, f"/{name}")
        if has_controls(zone):
            refuse(f"/{name}", "must have no control characters")
    rights.check_boundary(api_identity.caller_of(request), *zones)
    found = ledger.look_up(message_id, *zones)
    head = f'{{"offset":{found.offset},"message_id":{orjson.dumps(message_id).decode()},'
    return HttpResponse(head.encode() + found.content[1:].encode(), content_type=JSON)


def answer(value: Any, status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(orjson.dumps(value), status=status, content_type=JSON)


def _told(appended: Appended) -> tuple[int, dict[str, Any]]:
    """The status and the body that answer an append."""
    status = HTTPStatus.OK if appended.is_duplicate else HTTPStatus.CREATED
    place = {"offset": appended.offset, "message_id": appended.message_id}
    return int(status), {**place, "duplicate": appended.is_duplicate}


def refuse_others(body: Mapping[str, Any], known: str) -> None:
    """Refuse every field but one, by its name."""
    for name in body:
        if name != known:
            msg = f"{name} is unknown"
            raise InvalidFactError(msg, problems.pointer_to(name))


def _prepared(caller: Caller, draft: Any) -> Entry | FactError:
    try:
        entry = ledger.prepare(draft)
        rights.check_append(caller, entry)
    except FactError as error:
        telemetry.refused(error)
        return error
    return entry


def _result(place: int, result: Appended | FactError) -> dict[str, Any]:
    if isinstance(result, FactError):
        # A copy: the same refusal may stand at several places.
        error = copy(result)
        error.pointer = f"/facts/{place}{result.pointer}"
        problem = problem_of(error)
        return {"status": int(problem.status_code), "problem": problems.document(problem)}
    status, body = _told(result)
    return {"status": status, **body}

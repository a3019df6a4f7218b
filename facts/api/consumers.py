"""Consumers over HTTP: fetch, confirm."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from ergon_site.access import api_identity
from ergon_site.access.api.parsers import StrictJSONParser
from ergon_site.access.api.schema import also_refuses
from facts import ledger
from facts.api import rights
from facts.api.facts import JSON, answer, refuse_others
from facts.api.problems import Refusing
from facts.api.serializers import ConfirmedSerializer, ConfirmSerializer, ConsumerSerializer, FactPageSerializer
from facts.conf import settings
from facts.core.errors import InvalidFactError, refuse
from facts.ledger import reading


@contextmanager
def patience(asked: float) -> Iterator[float]:
    """The time that a fetch may wait: as long as asked for, or not at all while too many wait."""
    if not asked or not _places().acquire(blocking=False):
        yield 0.0
        return
    try:
        yield asked
    finally:
        _places().release()


@cache
def _places() -> threading.BoundedSemaphore:
    return threading.BoundedSemaphore(settings().waiting_fetches)


class ConsumerView(Refusing, APIView):
    """Which boundary a consumer reads, and how far it is."""

    required_scope = "facts:fetch"

    @extend_schema(responses=ConsumerSerializer)
    def get(self, request: Request, name: str) -> HttpResponse:
        rights.check_consumer(api_identity.caller_of(request), name)
        return answer(reading.position(reading.find_consumer(name)))


class ConsumerFactsView(Refusing, APIView):
    """FetchFacts: those after the cursor, in order. Nothing changes by fetching."""

    required_scope = "facts:fetch"

    @extend_schema(
        parameters=[
            OpenApiParameter("limit", int, description="1 to 1,000; default 100."),
            OpenApiParameter(
                "wait",
                float,
                description="Seconds to wait for facts if there are none, at most 30; less while many clients wait.",
            ),
        ],
        responses={(200, JSON): FactPageSerializer, **also_refuses(410)},
    )
    def get(self, request: Request, name: str) -> HttpResponse:
        rights.check_consumer(api_identity.caller_of(request), name)
        limit = _number(request, "limit", int, default=100, least=1, most=reading.MOST)
        wait = _number(request, "wait", float, default=0.0, least=0, most=reading.LONGEST_WAIT)
        with patience(wait) as granted:
            page = ledger.fetch(name, limit=limit, wait=granted)
        # Each is kept as the text that it is sent as.
        facts = ",".join(f'{{"offset":{offset},{content[1:]}' for offset, content in page.facts)
        return HttpResponse(f'{{"facts":[{facts}],"cursor":{page.cursor}}}'.encode(), content_type=JSON)


class ConfirmView(Refusing, APIView):
    """ConfirmReceipt: the consumer has everything up to here."""

    required_scope = "facts:fetch"
    parser_classes = [StrictJSONParser]

    @extend_schema(request=ConfirmSerializer, responses={(200, JSON): ConfirmedSerializer, **also_refuses(409, 410)})
    def post(self, request: Request, name: str) -> HttpResponse:
        rights.check_consumer(api_identity.caller_of(request), name)
        body = request.data
        if not isinstance(body, dict):
            msg = "the body must be an object with an offset"
            raise InvalidFactError(msg, "/offset")
        refuse_others(body, "offset")
        return answer({"cursor_advanced_to": ledger.confirm(name, body.get("offset"))})


def _number(request: Request, name: str, kind: Any, *, default: Any, least: float, most: float) -> Any:
    text = request.GET.get(name)
    if text is None:
        return default
    try:
        number = kind(text)
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        refuse(f"/{name}", f"must be a number from {least:g} to {most:g}")
    return number

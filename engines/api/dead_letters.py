"""Dead letters over HTTP."""

from http import HTTPStatus
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import dead_letters, transactions
from engines.api import bodies, filters, hiding, tenants
from engines.api.problems import Refusing
from engines.api.serializers import (
    DeadLetterDetailSerializer,
    DeadLetterSerializer,
    ReplaySerializer,
    SubmittedSerializer,
)
from engines.core.states import State
from engines.models import DeadLetter, TransactionRecord
from ergon_site.access import api_identity
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer
from ergon_site.access.api.schema import also_refuses


class DeadLettersView(Refusing, ListAPIView[DeadLetter]):
    """Terminal failures, newest first."""

    required_scope = "transactions:read"
    serializer_class = DeadLetterSerializer

    def get_queryset(self) -> QuerySet[DeadLetter]:
        found = filters.dead_letters(self.request.GET).filter(tenants.visible(api_identity.caller_of(self.request)))
        return found.defer("payload", "traceback", "details")

    @extend_schema(parameters=filters.FOR_DEAD_LETTERS)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)


class DeadLetterView(Refusing, APIView):
    """A dead letter with its traceback and what would be replayed."""

    required_scope = "transactions:read"

    @extend_schema(responses=DeadLetterDetailSerializer)
    def get(self, request: Request, letter_id: int) -> Response:
        letter = dead_letters.find(letter_id)
        tenants.check(api_identity.caller_of(request), letter)
        return Response(DeadLetterDetailSerializer(letter).data)


class ReplayLetterView(Refusing, APIView):
    """Run a dead letter's transaction again, as a new one."""

    required_scope = "dead_letters:operate"

    @property
    def body_limit(self) -> int:
        return bodies.payload_limit()

    @extend_schema(
        request=ReplaySerializer,
        responses={(201, "application/json"): SubmittedSerializer, **also_refuses(409)},
    )
    def post(self, request: Request, letter_id: int) -> Response:
        tenants.check(api_identity.caller_of(request), dead_letters.find(letter_id))
        asked = hiding.for_letter(letter_id, bodies.replay(request.data))
        uid = transactions.replay_letter(letter_id, by=api_identity.caller_of(request).actor, **asked)
        return Response({"id": uid, "state": _state_of(uid)}, status=HTTPStatus.CREATED)


class DiscardLetterView(Refusing, APIView):
    """Decide that a dead letter will not be replayed."""

    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(
        request=DecisionSerializer,
        responses={(200, "application/json"): DeadLetterSerializer, **also_refuses(409)},
    )
    def post(self, request: Request, letter_id: int) -> Response:
        tenants.check(api_identity.caller_of(request), dead_letters.find(letter_id))
        dead_letters.discard(letter_id, by=api_identity.caller_of(request).actor, **bodies.decision(request.data))
        return Response(DeadLetterSerializer(dead_letters.find(letter_id)).data)


def _state_of(uid: str) -> str:
    """Of the new transaction; what another source runs is on its way."""
    record = TransactionRecord.objects.filter(uid=uid).first()
    return record.word if record else State.PENDING.word

"""Dead letters over HTTP."""

from http import HTTPStatus

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import dead_letters, transactions
from engines.api import hiding, tenants
from engines.api.bodies import TakesPayload
from engines.api.problems import Refusing, answers
from engines.api.serializers import (
    DeadLetterDetailSerializer,
    DeadLetterSerializer,
    ReplaySerializer,
    SubmittedSerializer,
)
from engines.core.states import State
from engines.models import DeadLetter, TransactionRecord
from engines.reads import dead_letters as lists, filters
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, shaped

FILTERS = [
    OpenApiParameter("state", str, enum=filters.LETTER_STATES),
    OpenApiParameter("source", str, description="The pipeline or provider that failed."),
    OpenApiParameter("category", str, enum=filters.CATEGORY_NAMES),
    OpenApiParameter("group", int, description="The number of the dead-letter group."),
]


@extend_schema_view(get=extend_schema(parameters=FILTERS))
class DeadLettersView(Refusing, ListAPIView[DeadLetter]):
    """Terminal failures, newest first."""

    required_scope = "transactions:read"
    serializer_class = DeadLetterSerializer

    def get_queryset(self) -> QuerySet[DeadLetter]:
        return lists.letters(self.request.GET).filter(tenants.visible(self.caller))


class DeadLetterView(Refusing, APIView):
    """A dead letter with its traceback and what would be replayed."""

    required_scope = "transactions:read"

    @extend_schema(responses=DeadLetterDetailSerializer)
    def get(self, request: Request, letter_id: int) -> Response:
        letter = dead_letters.find(letter_id)
        tenants.check(self.caller, letter)
        return Response(DeadLetterDetailSerializer(letter).data)


class ReplayLetterView(TakesPayload, Refusing, APIView):
    """Run a dead letter's transaction again, as a new one."""

    required_scope = "dead_letters:operate"

    @extend_schema(request=ReplaySerializer, responses=answers(SubmittedSerializer, 409, status=201))
    def post(self, request: Request, letter_id: int) -> Response:
        letter = dead_letters.find(letter_id)
        tenants.check(self.caller, letter)
        asked = shaped(ReplaySerializer, request.data)
        if "payload" in asked:
            original, hidden = dead_letters.payload_of(letter), dead_letters.redacted_of(letter)
            asked["payload"] = hiding.restored(asked["payload"], original, hidden)
        uid = transactions.replay_letter(letter_id, by=self.caller.actor, **asked)
        record = TransactionRecord.objects.filter(uid=uid).first()
        # What another source runs is on its way.
        return Response({"id": uid, "state": record.word if record else State.PENDING.word}, status=HTTPStatus.CREATED)


class DiscardLetterView(Refusing, APIView):
    """Decide that a dead letter will not be replayed."""

    required_scope = "dead_letters:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=DecisionSerializer, responses=answers(DeadLetterSerializer, 409))
    def post(self, request: Request, letter_id: int) -> Response:
        tenants.check(self.caller, dead_letters.find(letter_id))
        dead_letters.discard(letter_id, by=self.caller.actor, **shaped(DecisionSerializer, request.data))
        return Response(DeadLetterSerializer(dead_letters.find(letter_id)).data)

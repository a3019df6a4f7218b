"""Transactions over HTTP."""

from datetime import datetime
from http import HTTPStatus

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines import transactions
from engines.api import bodies, hiding
from engines.api.bodies import TakesPayload
from engines.api.problems import Refusing, answers
from engines.api.serializers import (
    BatchAnswerSerializer,
    BatchSerializer,
    ExplanationSerializer,
    ReplaySerializer,
    SubmissionSerializer,
    SubmittedSerializer,
    TransactionDetailSerializer,
    TransactionSerializer,
)
from engines.core.states import State
from engines.models import TransactionRecord
from engines.reads import explain, filters
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, freed, shaped
from ergon_site.access.api.idempotency import KEY, answer_once
from ergon_site.access.api.parsers import BATCH_LIMIT
from ergon_site.access.idempotency import Answer

ID = OpenApiParameter(
    "uid", str, OpenApiParameter.PATH, description="The transaction's id, percent-encoded: `a/b c` is `a%2Fb%20c`."
)
FILTERS = [
    OpenApiParameter("state", str, enum=filters.STATES),
    OpenApiParameter("pipeline", str, description="The name of the pipeline."),
    OpenApiParameter("category", str, enum=filters.CATEGORY_NAMES, description="The category of the failure."),
    OpenApiParameter("correlation_id", str),
    OpenApiParameter("id", str),
    OpenApiParameter("created_after", datetime, description="At this time or later."),
    OpenApiParameter("created_before", datetime, description="Before this time."),
]
COLUMNS = {"id": "uid", "pipeline": "pipeline__name", "deliveries": "attempts"}
# The error says whether a pending one is parked, which counts as a delivery.
LISTED = [*(COLUMNS.get(name, name) for name in TransactionSerializer.Meta.fields), "error"]


@extend_schema_view(get=extend_schema(parameters=FILTERS))
class TransactionsView(TakesPayload, Refusing, ListAPIView[TransactionRecord]):
    """All transactions, newest first; and the way in for new ones."""

    required_scope = {"GET": "transactions:read", "POST": "transactions:submit"}
    serializer_class = TransactionSerializer

    def get_queryset(self) -> QuerySet[TransactionRecord]:
        asked = filters.conditions(self.request.GET, filters.TRANSACTIONS)
        return TransactionRecord.objects.select_related("pipeline").filter(*asked.values()).only(*LISTED)

    @extend_schema(
        parameters=[KEY],
        request=SubmissionSerializer,
        responses=answers(SubmittedSerializer, status=201) | answers(SubmittedSerializer, 409, 422),
    )
    def post(self, request: Request) -> Response:
        """Keep a transaction until it has ended. One whose id or dedupe key is there already is not kept twice: 200."""
        asked = bodies.submission(request.data)
        source = self.caller.actor

        def submit() -> Answer:
            one = transactions.submit(**asked, source=source)
            status = HTTPStatus.CREATED if one.is_new else HTTPStatus.OK
            return Answer(status=status, body={"id": one.id, "state": one.state})

        return answer_once(request, submit)


class BatchView(TakesPayload, Refusing, APIView):
    """Up to a thousand transactions, of one pipeline or of several: all of them are kept, or none."""

    required_scope = "transactions:submit"

    @property
    def body_limit(self) -> int:
        return max(BATCH_LIMIT, super().body_limit)

    @extend_schema(parameters=[KEY], request=BatchSerializer, responses=answers(BatchAnswerSerializer, 409, 422))
    def post(self, request: Request) -> Response:
        with freed(request) as body:
            entries = bodies.batch(body, source=self.caller.actor)

            def submit() -> Answer:
                results = [one._asdict() for one in transactions.submit_together(entries)]
                return Answer(status=HTTPStatus.OK, body={"results": results})

            return answer_once(request, submit)


@extend_schema(parameters=[ID])
class TransactionView(Refusing, APIView):
    """A transaction with everything that is kept of it."""

    required_scope = "transactions:read"

    @extend_schema(responses=TransactionDetailSerializer)
    def get(self, request: Request, uid: str) -> Response:
        return Response(TransactionDetailSerializer(transactions.find(uid)).data)


@extend_schema(parameters=[ID])
class ExplainView(Refusing, APIView):
    """Explains the state of a transaction: one sentence, the facts behind it, and every attempt."""

    required_scope = "transactions:read"

    @extend_schema(responses=ExplanationSerializer)
    def get(self, request: Request, uid: str) -> Response:
        return Response(explain.explain(uid))


@extend_schema(parameters=[ID])
class CancelView(Refusing, APIView):
    """End a transaction that has not begun, or request the end of one that runs."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(
        request=DecisionSerializer,
        responses=answers(SubmittedSerializer, status=202) | answers(SubmittedSerializer, 409),
    )
    def post(self, request: Request, uid: str) -> Response:
        """202 if it is requested of a running one: it goes on until its attempt has ended."""
        record = transactions.cancel(uid, by=self.caller.actor, **shaped(DecisionSerializer, request.data))
        status = HTTPStatus.OK if State(record.state).is_final else HTTPStatus.ACCEPTED
        return Response({"id": record.uid, "state": record.word}, status=status)


@extend_schema(parameters=[ID])
class ReplayView(TakesPayload, Refusing, APIView):
    """Run a transaction that has ended once more, as a new one."""

    required_scope = "transactions:operate"

    @extend_schema(request=ReplaySerializer, responses=answers(SubmittedSerializer, 409, status=201))
    def post(self, request: Request, uid: str) -> Response:
        asked = shaped(ReplaySerializer, request.data)
        if "payload" in asked:
            record = transactions.find(uid)
            asked["payload"] = hiding.restored(asked["payload"], record.payload, record.pipeline.redacted)
        new = transactions.replay(uid, by=self.caller.actor, **asked)
        return Response({"id": new.id, "state": new.state}, status=HTTPStatus.CREATED)

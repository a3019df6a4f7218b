"""Attention items over HTTP: the same list, and the same acknowledgements, as on the dashboard."""

from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import acknowledgements, api_identity
from ergon_site.access.acknowledgements import ItemUnknownError
from ergon_site.access.api.bodies import DECISION_LIMIT, DecisionSerializer, Text, shaped
from ergon_site.access.api.conventions import Refusing
from ergon_site.access.api.problems import Problem
from ergon_site.access.api.schema import also_refuses
from ergon_site.access.core import attention
from ergon_site.access.core.texts import sentence
from ergon_site.access.database.clock import page_time
from ergon_site.access.models import LONGEST_KEY
from ergon_site.dashboard import reading
from ergon_site.dashboard.reading import Reading

EVERYTHING = "platform"
MOST = 1000


class ItemSerializer(serializers.Serializer[Any]):
    """What needs attention, or a consequence of that."""

    key = serializers.CharField()
    severity = serializers.ChoiceField(choices=[one.word for one in attention.Severity], source="severity.word")
    title = serializers.CharField()
    detail = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    count = serializers.IntegerField()
    is_capped = serializers.BooleanField(help_text="Whether the count is a lower limit.")


class AcknowledgementSerializer(serializers.Serializer[Any]):
    key = serializers.CharField(help_text="Of the item, or of several that were acknowledged as one.")
    by = serializers.CharField()
    reason = serializers.CharField()
    until = serializers.DateTimeField()


class EntrySerializer(serializers.Serializer[Any]):
    item = ItemSerializer()
    summary = serializers.CharField(help_text="The consequences in few words.")
    consequences = ItemSerializer(many=True)
    acknowledged = AcknowledgementSerializer(allow_null=True)


class AttentionSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="How many need attention, those included that are not listed.")
    is_capped = serializers.BooleanField(help_text="Whether the count is a lower limit.")
    results = EntrySerializer(many=True)


class WithdrawSerializer(DecisionSerializer):
    key = Text(max_length=LONGEST_KEY)


class AcknowledgeSerializer(WithdrawSerializer):
    hours = serializers.IntegerField(min_value=1, max_value=int(attention.LONGEST.total_seconds() // 3600))


class AttentionAnswer(Refusing):
    """A view of attention items. They tell of every tenant, zone and pipeline."""

    request: Any

    def initial(self, request: Request, *arguments: Any, **options: Any) -> None:
        super().initial(request, *arguments, **options)  # type: ignore[misc]
        if EVERYTHING not in api_identity.caller_of(request).scopes:
            raise PermissionDenied

    def translate(self, error: Exception) -> Exception:
        if isinstance(error, ItemUnknownError):
            return Problem(HTTPStatus.NOT_FOUND, "item_unknown", sentence(error))
        return error


class AttentionView(AttentionAnswer, APIView):
    """What needs attention: the worst first, causes with their consequences, then what is acknowledged."""

    required_scope = EVERYTHING

    @extend_schema(responses=AttentionSerializer)
    def get(self, request: Request) -> Response:
        found = _read()
        entries = (*found.board.entries, *found.board.acknowledged)[:MOST]
        return Response(
            AttentionSerializer({"count": found.count, "is_capped": bool(found.capped), "results": entries}).data
        )


class AcknowledgeView(AttentionAnswer, APIView):
    """Fold an item away until its time is over or it gets worse."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=AcknowledgeSerializer, responses={200: EntrySerializer, **also_refuses(404)})
    def post(self, request: Request) -> Response:
        asked = shaped(AcknowledgeSerializer, request.data)
        entry = _read().board.find(asked["key"])
        why = {"by": api_identity.caller_of(request).actor, "reason": asked["reason"]}
        word = acknowledgements.acknowledge(entry, asked["key"], timedelta(hours=asked["hours"]), **why)
        return Response(EntrySerializer(replace(entry, acknowledged=word) if entry else None).data)


class WithdrawView(AttentionAnswer, APIView):
    """Show an acknowledged item again."""

    required_scope = "transactions:operate"
    body_limit = DECISION_LIMIT

    @extend_schema(request=WithdrawSerializer, responses={204: None, **also_refuses(404)})
    def post(self, request: Request) -> Response:
        asked = shaped(WithdrawSerializer, request.data)
        acknowledgements.withdraw(asked["key"], by=api_identity.caller_of(request).actor, reason=asked["reason"])
        return Response(status=HTTPStatus.NO_CONTENT)


def _read() -> Reading:
    return reading.read(page_time(), is_administrator=True)


urlpatterns = [
    path("attention", AttentionView.as_view(), name="attention"),
    path("attention/acknowledge", AcknowledgeView.as_view(), name="attention-acknowledge"),
    path("attention/withdraw", WithdrawView.as_view(), name="attention-withdraw"),
]

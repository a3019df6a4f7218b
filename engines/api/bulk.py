"""Bulk operations on selected rows over HTTP: an address for each kind of rows."""

from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from engines.api import tenants
from engines.api.problems import Refusing, answers
from engines.api.serializers import BulkOperationSerializer, DryRunSerializer, SelectedSerializer
from engines.dead_letters import bulk, bulk_replays
from engines.dead_letters.bulk import Selection, Terms
from engines.models import BulkOperation
from ergon_site.access.api.bodies import shaped
from ergon_site.access.bulk_kinds import bulk_kinds

SELECTION_LIMIT = 256 * 1024


class BeginSelectedView(Refusing, APIView):
    """Act on many rows of a kind: on those with these ids, or on all that a filter finds when it runs.

    With `dry_run` it only counts what would be done, and what would be skipped for which reasons.
    """

    required_scope = ""
    kind = ""
    body_limit = SELECTION_LIMIT

    @extend_schema(
        request=SelectedSerializer,
        responses={
            (200, "application/json"): DryRunSerializer,
            **answers(BulkOperationSerializer, 404, 409, status=201),
        },
    )
    def post(self, request: Request) -> Response:
        asked = shaped(SelectedSerializer, request.data)
        verb, is_dry, reason = asked.pop("verb"), asked.pop("dry_run", False), asked.pop("reason", "")
        selection = Selection(
            kind=self.kind, keys=bulk.keys_of(self.kind, asked.pop("ids", ())), where=asked.pop("filter", None)
        )
        tenants.check_selection(self.caller, selection)
        if is_dry:
            return Response(DryRunSerializer(asdict(bulk.dry_run(verb, selection))).data)
        # A person who replays many is shown one first, too.
        careful = {"canary": 1} if verb == "replay" else {"rate": bulk.AT_ONCE}
        terms = Terms(**{**careful, **asked})
        operation = bulk.begin_selected(verb, selection, terms, by=self.caller.actor, reason=reason)
        return Response(operation_body(operation), status=HTTPStatus.CREATED)


def operation_body(operation: BulkOperation) -> Any:
    return BulkOperationSerializer(bulk_replays.with_figures([bulk.find(operation.pk)])[0]).data


def addresses() -> list[URLPattern]:
    """An address for each kind of rows that the installed apps know, under the scope that it needs."""
    return [
        path(
            f"bulk-operations/{name.replace('_', '-')}s",
            BeginSelectedView.as_view(kind=name, required_scope=kind.scope),
            name=f"bulk-operations-{name}",
        )
        for name, kind in bulk_kinds().items()
    ]

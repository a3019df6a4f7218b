"""Ergon's addresses, and two views that insert one row: a bare `APIView` and a plain view of Django."""

import json
from typing import Any

from django.db import models
from django.http import HttpRequest, JsonResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView


class BareRow(models.Model):
    message_id = models.TextField()
    content = models.TextField()

    class Meta:
        app_label = "facts"
        db_table = "bare_row"
        managed = False

    def __str__(self) -> str:
        return self.message_id


class BareView(APIView):
    authentication_classes = permission_classes = throttle_classes = ()

    def post(self, request: Request) -> Response:
        return Response(_inserted(request.data), status=201)


@csrf_exempt
def plain_view(request: HttpRequest) -> JsonResponse:
    return JsonResponse(_inserted(json.loads(request.body)), status=201)


def _inserted(body: Any) -> dict[str, Any]:
    message_id = body["envelope"]["message_id"]
    row = BareRow._default_manager.create(message_id=message_id, content=json.dumps(body))  # noqa: SLF001
    return {"offset": row.pk, "message_id": message_id}


urlpatterns = [path("bare", BareView.as_view()), path("plain", plain_view), path("", include("ergon_site.urls"))]

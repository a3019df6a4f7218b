"""Ergon's addresses and a bare view that inserts one row."""

import json
from typing import Any

from django.db import models
from django.urls import include, path
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
        body: Any = request.data
        message_id = body["envelope"]["message_id"]
        row = BareRow._default_manager.create(message_id=message_id, content=json.dumps(body))  # noqa: SLF001
        return Response({"offset": row.pk, "message_id": message_id}, status=201)


urlpatterns = [path("bare", BareView.as_view()), path("", include("ergon_site.urls"))]

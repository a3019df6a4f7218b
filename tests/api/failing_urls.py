"""Addresses that fail on purpose, beside the real ones."""

from typing import Any, NoReturn

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError
from django.http import HttpRequest
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site import urls as real


class Thing(serializers.Serializer[Any]):
    name = serializers.CharField()
    sizes = serializers.ListField(child=serializers.IntegerField())


class EchoView(APIView):
    required_scope = None
    body_limit = 1000

    def post(self, request: Request) -> Response:
        thing = Thing(data=request.data)
        thing.is_valid(raise_exception=True)
        return Response(thing.data)


class ForgetfulView(APIView):
    def get(self, request: Request) -> Response:
        return Response()


class AwayView(APIView):
    required_scope = None

    def get(self, request: Request) -> Response:
        raise OperationalError("deadlock detected")  # noqa: EM101, TRY003


def fail(_request: HttpRequest) -> NoReturn:
    raise ZeroDivisionError


def lack_database(_request: HttpRequest) -> NoReturn:
    raise OperationalError


def deny(_request: HttpRequest) -> NoReturn:
    raise PermissionDenied


def suspect(_request: HttpRequest) -> NoReturn:
    raise SuspiciousOperation


urlpatterns = [
    path("api/v1/echo", EchoView.as_view()),
    path("api/v1/forgetful", ForgetfulView.as_view()),
    path("api/v1/away", AwayView.as_view()),
    path("api/v1/fail", fail),
    path("api/v1/deny", deny),
    path("api/v1/suspect", suspect),
    path("fail", fail),
    path("api/v1/lacking", lack_database),
    path("lacking", lack_database),
    path("deny", deny),
    *real.urlpatterns,
]
handler400, handler403 = real.handler400, real.handler403
handler404, handler500 = real.handler404, real.handler500

"""Endpoints for orchestrators and monitoring: /livez, /readyz and /metrics."""

import math
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import ip_address

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from rest_framework.exceptions import APIException, MethodNotAllowed, Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ergon_site.access import api_identity, pending_migrations
from ergon_site.access.api import problems, throttling
from ergon_site.access.api.conventions import Conventional
from ergon_site.access.api.throttling import ClientRate
from ergon_site.access.conf import setting
from ergon_site.access.database.calls import time_limit
from ergon_site.gauges import Gauges

Handler = Callable[[HttpRequest], HttpResponse]

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")


def answer_probes(get_response: Handler) -> Handler:
    """The first middleware: whoever probes by bare address, in plain HTTP, must get an answer all the same."""
    probes = {"/livez": livez, "/readyz": readyz, "/metrics": metrics}

    def middleware(request: HttpRequest) -> HttpResponse:
        probe = probes.get(request.path)
        if probe is None:
            return get_response(request)
        if request.method not in {"GET", "HEAD"}:
            return _refuse(MethodNotAllowed(request.method or ""), Allow="GET, HEAD")
        return probe(request)

    return middleware


def livez(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "alive"})


def readyz(_request: HttpRequest) -> JsonResponse:
    """The process can work: its database answers and has every migration."""
    checks = {"database": "ok", "migrations": "ok"}
    try:
        with time_limit(setting("ERGON_DATABASE_TIMEOUT")):
            connection.ensure_connection()
            if waiting := pending_migrations.plan():
                checks["migrations"] = f"{len(waiting)} waiting: run the command migrate"
    except DatabaseError:
        checks = {"database": "does not answer", "migrations": "unknown"}
    ready = all(state == "ok" for state in checks.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JsonResponse({"status": "ready" if ready else "not ready", "checks": checks}, status=status)


def metrics(request: HttpRequest) -> HttpResponse:
    """The instruments of this process, for callers on this host and for clients with the scope `metrics:read`."""
    try:
        is_local = ip_address(request.META.get("REMOTE_ADDR", "").partition("%")[0]).is_loopback
    except ValueError:
        is_local = False  # a server that listens on a socket in the file system tells of no address
    # Behind a proxy on this host every caller looks local: a forwarded request never is.
    if is_local and not any(header in request.META for header in FORWARDED):
        verdict = throttling.admit("metrics:this host", setting("ERGON_METRICS_RATE"))
        wait = math.ceil(verdict.retry_after)
        return _exposition() if verdict.is_admitted else _refuse(Throttled(wait), **{"Retry-After": str(wait)})
    answer: HttpResponse = MetricsView.as_view()(request)
    return answer.render() if isinstance(answer, Response) else answer


class MetricsRate(ClientRate):
    """Each client may ask as often as the deployment says, whatever its rate of other calls."""

    def allow_request(self, request: Request, view: object) -> bool:
        client = api_identity.caller_of(request).client_id
        self.verdict = throttling.admit(f"metrics:client {client}", setting("ERGON_METRICS_RATE"))
        return self.verdict.is_admitted


class MetricsView(Conventional, APIView):
    """For callers from elsewhere, identified as in the API."""

    required_scope = "metrics:read"
    throttle_classes = (MetricsRate,)

    def get(self, request: Request) -> HttpResponse:
        return _exposition()


def _exposition() -> HttpResponse:
    """The instruments of this process and the gauges of the database, as Prometheus reads them."""
    shared = CollectorRegistry()
    shared.register(Gauges())
    return HttpResponse(generate_latest() + generate_latest(shared), content_type=CONTENT_TYPE_LATEST)


def _refuse(error: APIException, **headers: str) -> JsonResponse:
    body = problems.document(error)
    return JsonResponse(body, status=error.status_code, headers=headers, content_type=problems.MEDIA_TYPE)

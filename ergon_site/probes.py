"""What orchestrators and monitoring ask: alive, ready, and the numbers."""

from http import HTTPStatus
from ipaddress import ip_address

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from rest_framework.exceptions import NotAuthenticated

from ergon_site import telemetry
from ergon_site.access import callers
from ergon_site.access.api import problems

FORWARDED = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED", "HTTP_X_REAL_IP")


@require_safe
def livez(_request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "alive"})


@require_safe
def readyz(_request: HttpRequest) -> JsonResponse:
    """The process can work: its database answers and has every migration."""
    checks = {"database": "ok", "migrations": "ok"}
    try:
        connection.ensure_connection()
        executor = MigrationExecutor(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if waiting:
            checks["migrations"] = f"{len(waiting)} waiting: run manage.py migrate"
    except DatabaseError:
        checks = {"database": "does not answer", "migrations": "unknown"}
    ready = all(state == "ok" for state in checks.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JsonResponse({"status": "ready" if ready else "not ready", "checks": checks}, status=status)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The instruments of this process, for callers on this host or with a token."""
    if not (_is_local(request) or _has_token(request)):
        refusal = NotAuthenticated("Metrics are for callers on this host or with a token.")
        return JsonResponse(
            problems.document(refusal),
            status=refusal.status_code,
            headers={"WWW-Authenticate": 'Bearer realm="ergon"'},
            content_type=problems.MEDIA_TYPE,
        )
    body, content_type = telemetry.exposition()
    return HttpResponse(body, content_type=content_type)


def _is_local(request: HttpRequest) -> bool:
    # Behind a proxy on this host every caller looks local: a forwarded request never is.
    if any(header in request.META for header in FORWARDED):
        return False
    address = request.META.get("REMOTE_ADDR", "")
    return bool(address) and ip_address(address.partition("%")[0]).is_loopback


def _has_token(request: HttpRequest) -> bool:
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and callers.identify(text.strip()) is not None

"""Middleware of every request."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from ergon_site.access.telemetry import api_duration

Handler = Callable[[HttpRequest], HttpResponse]

# What the console's script sends when a page refreshes itself.
REFRESH = "X-Ergon-Refresh"
# A session in use is written so many times in its life, not with every request.
RENEWALS = 60


def observe_api(get_response: Handler) -> Handler:
    """Measure calls of the API by route, never by address: addresses hold ids."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/api/"):
            return get_response(request)
        started = time.perf_counter()
        response = get_response(request)
        route = request.resolver_match.route if request.resolver_match else "unmatched"
        labels: dict[str, str | int] = {"method": request.method or "", "route": route, "status": response.status_code}
        api_duration.record(time.perf_counter() - started, labels)
        return response

    return middleware


def renew_sessions(get_response: Handler) -> Handler:
    """Let a console session live on while somebody uses it. A page that refreshes itself is nobody's use."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.path.startswith("/admin/") and REFRESH not in request.headers:
            session: Any = request.session
            if SESSION_KEY in session and session.expires_at is not None:
                age = timedelta(seconds=settings.SESSION_COOKIE_AGE)
                if session.expires_at < timezone.now() + age * (1 - 1 / RENEWALS):
                    # Django writes a session that has changed, and counts its age from then on.
                    session.modified = True
        return get_response(request)

    return middleware

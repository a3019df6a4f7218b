"""Middleware of every request."""

import time
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import Any

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import MiddlewareNotUsed
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from ergon_site.access.database import refusals
from ergon_site.access.database.watched_requests import WatchedRequests
from ergon_site.access.telemetry import api_duration

Handler = Callable[[HttpRequest], HttpResponse]

API = "/api/v1/"
# What the console's script sends when a page refreshes itself.
REFRESH = "X-Ergon-Refresh"
# A session in use is written so many times in its life, not with every request.
RENEWALS = 60
# A caller may send any word as a method, and each would be a series that the process keeps for good.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "_OTHER"


def watch_requests(get_response: Handler) -> Handler:
    """Let no request wait for ever for a database that answers nobody."""
    if connection.vendor != "postgresql":
        raise MiddlewareNotUsed
    requests = WatchedRequests()
    return lambda request: requests.answer(get_response, request)


def observe_api(get_response: Handler) -> Handler:
    """Measure calls of the API by route, never by address: addresses hold ids."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/api/"):
            return get_response(request)
        started = time.perf_counter()
        response = get_response(request)
        route = request.resolver_match.route if request.resolver_match else "unmatched"
        method = request.method if request.method in METHODS else OTHER_METHOD
        labels: dict[str, str | int] = {"method": method, "route": route, "status": response.status_code}
        api_duration.record(time.perf_counter() - started, labels)
        return response

    return middleware


class ContentPolicy(CSPMiddleware):
    """The policy of the settings on every answer, written once: no view has one of its own, and no page a nonce."""

    @cached_property
    def _policy(self) -> str:
        return build_policy()

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if settings.DEBUG:  # the pages that tell a developer of an error are exempt
            return super().process_response(request, response)
        response.headers.setdefault(HEADER, self._policy)
        return response


class _ForPeople(MiddlewareMixin):
    """Middleware that calls of the API pass by: they have tokens, and neither sessions nor cookies."""

    def __call__(self, request: HttpRequest) -> Any:
        if request.path_info.startswith(API):
            return self.get_response(request)
        return super().__call__(request)


class Sessions(_ForPeople, SessionMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Also a page that was read while the database takes no changes: its session is renewed another time."""
        try:
            return super().process_response(request, response)
        except (DatabaseError, SessionInterrupted) as error:  # Django takes it for a session that was deleted
            if not refusals.takes_no_changes(error):
                raise
            return response


class Authentication(_ForPeople, AuthenticationMiddleware): ...


class Messages(_ForPeople, MessageMiddleware): ...


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

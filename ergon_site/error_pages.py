"""Error pages inside the console's shell: the menu stays, also beside the admin of another project."""

import logging
from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.admin import AdminSite
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.signals import got_request_exception
from django.db import DatabaseError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.utils.log import log_response
from rest_framework.views import set_rollback

from ergon_site.access.core.roles import Right
from ergon_site.access.database import refusals
from ergon_site.console_templates import rendered

logger = logging.getLogger(__name__)

TEXTS = {
    HTTPStatus.BAD_REQUEST: ("Bad request", "This address or form has a value that the page cannot use."),
    HTTPStatus.FORBIDDEN: ("Not allowed", "Your roles do not allow this. Ask an administrator for another role."),
    HTTPStatus.NOT_FOUND: ("Not found", "This page does not exist, or what it showed has been removed."),
    HTTPStatus.INTERNAL_SERVER_ERROR: (
        "Something went wrong",
        "An unexpected error occurred and was logged. Try again in a moment.",
    ),
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "Not available",
        "The database is busy or does not answer. Try again in a moment.",
    ),
}
NO_CHANGES = (
    "Nothing was changed",
    "The database takes no changes: it is read-only, or its disk is full. Pages can be read meanwhile.",
)
NO_LOGIN = (
    "Nobody can log in now",
    "The database takes no changes: it is read-only, or its disk is full. Who is logged in can read pages meanwhile.",
)
STATUSES: dict[type[Exception], HTTPStatus] = {
    BadRequest: HTTPStatus.BAD_REQUEST,
    PermissionDenied: HTTPStatus.FORBIDDEN,
    Http404: HTTPStatus.NOT_FOUND,
}


class Bystander:
    """Stands in for a person on a page that must not ask the database: sees what everybody with a role sees."""

    is_active = is_staff = is_authenticated = True
    email = ""

    def __init__(self, name: str) -> None:
        self.username = name

    def get_username(self) -> str:
        return self.username

    get_full_name = get_username

    def has_usable_password(self) -> bool:
        return True

    def has_perm(self, permission: str, *_: object) -> bool:
        return permission == Right.VIEW.permission

    has_module_perms = has_perm


def in_shell(site: AdminSite, view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """The view, whose errors are pages of the console."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        try:
            return view(request, *args, **options)
        except (SuspiciousOperation, MultiPartParserError):
            raise
        except Exception as error:
            if settings.DEBUG or settings.DEBUG_PROPAGATE_EXCEPTIONS:
                raise
            status = next((told for kind, told in STATUSES.items() if isinstance(error, kind)), None)
            if status is not None:
                shown = _page(site, request, TEXTS[status], status)
            elif refusals.is_unavailable(error):
                shown = _unavailable(site, request, error)
            else:
                shown = _unexpected(site, request, error)
            # An answer, in place of an exception, would commit what a project's ATOMIC_REQUESTS has begun.
            set_rollback()
            return shown

    return answer


def at_login(site: AdminSite, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view of the login, which says so if the database does not let anybody in."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        try:
            return view(request, *args, **options)
        except DatabaseError as error:
            if settings.DEBUG or not refusals.is_unavailable(error):
                raise
            logger.warning("The database did not carry out a login", exc_info=error)
            status = HTTPStatus.SERVICE_UNAVAILABLE
            told = NO_LOGIN if refusals.takes_no_changes(error) else TEXTS[status]
            set_rollback()
            return _page(site, _without_database(request), told, status, "console/no_login.html")

    return answer


def _unexpected(site: AdminSite, request: HttpRequest, error: Exception) -> HttpResponse:
    """Reported as Django reports what leaves a view, and a page that does not ask the database."""
    got_request_exception.send(sender=None, request=request)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    shown = _page(site, _without_database(request), TEXTS[status], status)
    log_response("%s: %s", shown.reason_phrase, request.path, response=shown, request=request, exception=error)
    return shown


def _unavailable(site: AdminSite, request: HttpRequest, error: Exception) -> HttpResponse:
    logger.warning("The database did not carry out a request", exc_info=error)
    status = HTTPStatus.SERVICE_UNAVAILABLE
    told = NO_CHANGES if refusals.takes_no_changes(error) else TEXTS[status]
    return _page(site, _without_database(request), told, status)


def _without_database(request: HttpRequest) -> HttpRequest:
    """A request for the same address, with neither session nor messages, of nobody whom a table knows."""
    bare = HttpRequest()
    bare.path, bare.path_info, bare.META, bare.COOKIES = request.path, request.path_info, request.META, request.COOKIES
    bare.user = Bystander(request.user.get_username())  # type: ignore[assignment]
    return bare


@rendered
def _page(
    site: AdminSite,
    request: HttpRequest,
    told: tuple[str, str],
    status: HTTPStatus,
    template: str = "console/error.html",
) -> HttpResponse:
    title, text = told
    context = {**site.each_context(request), "title": title, "text": text}
    return TemplateResponse(request, template, context, status=status)

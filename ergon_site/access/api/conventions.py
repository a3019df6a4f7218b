"""What every view of the API has in common, whatever the project has set for views of its own."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC
from typing import Any

from django.db import transaction
from django.http import JsonResponse
from django.utils import timezone
from rest_framework.renderers import JSONRenderer

from ergon_site.access.api.authentication import CertificateAuthentication, HasScope, TokenAuthentication
from ergon_site.access.api.negotiation import QuickNegotiation
from ergon_site.access.api.pagination import NewestFirst
from ergon_site.access.api.parsers import LimitedJSONParser
from ergon_site.access.api.problems import handle
from ergon_site.access.api.throttling import ClientRate


class Conventional:
    """Clients with tokens, scopes and rates; JSON in and out; lists by cursor; errors as problems."""

    authentication_classes: Sequence[Any] = (TokenAuthentication, CertificateAuthentication)
    permission_classes: Sequence[Any] = (HasScope,)
    throttle_classes: Sequence[Any] = (ClientRate,)
    content_negotiation_class: Any = QuickNegotiation
    renderer_classes: Sequence[Any] = (JSONRenderer,)
    parser_classes: Sequence[Any] = (LimitedJSONParser,)
    pagination_class: Any = NewestFirst
    versioning_class: Any = None
    filter_backends: Sequence[Any] = ()

    @classmethod
    def as_view(cls, **options: Any) -> Any:
        """The view, outside of the transaction that a project may begin with each request: verbs bring their own."""
        return transaction.non_atomic_requests(super().as_view(**options))  # type: ignore[misc]

    def dispatch(self, *args: Any, **options: Any) -> Any:
        """Times are told in UTC, whatever the time zone of the project."""
        with timezone.override(UTC):
            return super().dispatch(*args, **options)  # type: ignore[misc]

    def get_exception_handler(self) -> Callable[[Exception, Mapping[str, Any]], JsonResponse | None]:
        return handle


class Refusing(Conventional):
    """A view whose verbs may refuse. Each app derives its own, which translates the errors of its verbs."""

    def translate(self, error: Exception) -> Exception:
        """The problem that an error is; any other error as it is."""
        raise NotImplementedError

    def get_exception_handler(self) -> Callable[[Exception, Mapping[str, Any]], JsonResponse | None]:
        return lambda error, context: handle(self.translate(error), context)

"""Every view names the scope that it needs."""

from collections.abc import Mapping
from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ergon_site.access import api_identity
from ergon_site.access.core import scopes


class HasScope(BasePermission):
    """The client holds `view.required_scope`: a scope, one for each method, or None for any client at all."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.auth is None:
            return False
        # A view that forgot to say is an error, never an open door.
        required: str | Mapping[str, str] | None = view.required_scope
        # HEAD is answered by whatever answers GET.
        method = "GET" if request.method == "HEAD" else request.method or ""
        scope = required.get(method) if isinstance(required, Mapping) else required
        self.message = f"This client lacks the scope {scope}."
        return scope is None or scopes.allows(api_identity.caller_of(request).scopes, scope)

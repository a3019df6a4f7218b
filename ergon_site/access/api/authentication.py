"""Who calls, by `Authorization: Bearer TOKEN` or by the certificate that a trusted proxy has verified, and what for.

A token goes first. Every view names the scope that it needs.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from ergon_site.access import addresses, api_identity
from ergon_site.access.api.throttling import refuse_guessing
from ergon_site.access.api_identity import Caller
from ergon_site.access.conf import setting
from ergon_site.access.core import scopes, terms

SCHEME = "Bearer"


class TokenAuthentication(BaseAuthentication):
    """The client of a request is whoever holds its token."""

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        caller = api_identity.identify(text.strip())
        return (caller, caller) if caller else _refuse(request, "token")

    def authenticate_header(self, request: Request) -> str:
        return f'{SCHEME} realm="ergon"'


class CertificateAuthentication(BaseAuthentication):
    """The client of a request is whoever the proxy says has shown its certificate."""

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        name = setting("ERGON_CERTIFICATE_HEADER")
        told: str = request.META.get(f"HTTP_{name.upper().replace('-', '_')}", "").strip() if name else ""
        if not told or not addresses.is_trusted(request.META.get("REMOTE_ADDR", "")):
            return None
        try:
            caller = api_identity.recognise(terms.certificate_identity(told))
        except terms.UnusableIdentityError:
            caller = None
        return (caller, caller) if caller else _refuse(request, "certificate")


def _refuse(request: Request, what: str) -> NoReturn:
    """Refuse without saying which of the reasons it was."""
    refuse_guessing(request)
    msg = f"The {what} is unknown or expired, or its client is disabled."
    raise AuthenticationFailed(msg)


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


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "Made in the console or by the command `create_api_client`.",
        }


class CertificateScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = CertificateAuthentication
    name = "certificate"

    def get_security_requirement(self, auto_schema: object) -> list[dict[str, list[str]]]:
        return [{self.name: []}] if setting("ERGON_CERTIFICATE_HEADER") else []

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "mutualTLS", "description": "Where a proxy verifies certificates and is set as trusted."}

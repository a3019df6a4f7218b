"""`Authorization: Bearer TOKEN`."""

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from ergon_site.access import callers
from ergon_site.access.api.throttling import refuse_guessing
from ergon_site.access.callers import Caller

SCHEME = "Bearer"


class TokenAuthentication(BaseAuthentication):
    """The client of a request is whoever holds its token."""

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        scheme, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != SCHEME.lower():
            return None
        caller = callers.identify(text.strip())
        if caller is None:
            refuse_guessing(request)
            msg = "The token is unknown or expired, or its client is disabled."
            raise AuthenticationFailed(msg)
        return caller, caller

    def authenticate_header(self, request: Request) -> str:
        return f'{SCHEME} realm="ergon"'


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document names it."""

    target_class = TokenAuthentication
    name = "token"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "Made by `manage.py create_api_client`."}

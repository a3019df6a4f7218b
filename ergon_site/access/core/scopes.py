"""The scopes of API clients."""

from collections.abc import Collection, Iterable

SCOPES = {
    "facts:append": "Append facts",
    "facts:fetch": "Fetch facts and confirm receipt",
    "objects:put": "Upload artifacts",
    "objects:get": "Download artifacts",
    "transactions:submit": "Submit transactions",
    "transactions:read": "Read transactions",
    "transactions:operate": "Cancel and replay transactions, pause pipelines",
    "dead_letters:operate": "Replay and discard dead letters",
    "policies:read": "Read policies",
    "policies:write": "Write policy versions",
    "providers:read": "Read provider health",
    "providers:operate": "Override provider breakers",
    "metrics:read": "Read metrics",
    "platform": "See every tenant and the audit log",
}
BOUNDARY_SCOPES = ("facts:append", "facts:fetch", "objects:put", "objects:get")


class UnknownScopeError(ValueError):
    """A scope that does not exist."""


def grant(asked: Iterable[str], *, at_boundary: bool) -> tuple[str, ...]:
    """The scopes of a new client: those asked for, or the boundary's four if it is made for the boundary."""
    scopes = tuple(dict.fromkeys(asked))
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        msg = f"unknown scope {unknown[0]!r}; there are: {', '.join(SCOPES)}"
        raise UnknownScopeError(msg)
    return scopes or (BOUNDARY_SCOPES if at_boundary else ())


def allows(granted: Collection[str], required: str) -> bool:
    return required in granted

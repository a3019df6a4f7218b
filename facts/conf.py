"""The settings of the boundary, read once into one frozen value."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from django.core.exceptions import ImproperlyConfigured

from ergon_site.access import conf
from facts.core.limits import Limits, limits_in
from facts.core.peers import Peer, parse_peer

DEFAULTS: dict[str, Any] = {
    "ERGON_FACT_LIMITS": {},
    "ERGON_HANDOFF_TIMEOUT": 15.0,
    "ERGON_ORPHAN_AGE": 86_400.0,
    "ERGON_PEERS": (),
    "ERGON_VERIFY_AGE": 604_800.0,
    "ERGON_WAITING_FETCHES": 2,
    "ERGON_ZONE": "local",
}
T = TypeVar("T")
setting = partial(conf.setting, defaults=DEFAULTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSettings:
    zone: str
    database_timeout: float
    limits: Limits
    body_limit: int
    orphan_age: float
    verify_age: float
    handoff_timeout: float
    waiting_fetches: int
    peers: tuple[Peer, ...]
    peer_tokens: Path


@cache
def settings() -> FactSettings:
    limits = _parsed("ERGON_FACT_LIMITS", limits_in)
    return FactSettings(
        zone=setting("ERGON_ZONE"),
        database_timeout=conf.setting("ERGON_DATABASE_TIMEOUT"),
        limits=limits,
        body_limit=limits.body,
        orphan_age=setting("ERGON_ORPHAN_AGE"),
        verify_age=setting("ERGON_VERIFY_AGE"),
        handoff_timeout=setting("ERGON_HANDOFF_TIMEOUT"),
        waiting_fetches=setting("ERGON_WAITING_FETCHES"),
        peers=_parsed(
            "ERGON_PEERS", lambda told: tuple(parse_peer(one) if isinstance(one, str) else one for one in told)
        ),
        peer_tokens=Path(conf.setting("ERGON_PEER_TOKENS", {"ERGON_PEER_TOKENS": conf.data_folder() / "peer-tokens"})),
    )


def _parsed(name: str, parse: Callable[[Any], T]) -> T:
    try:
        return parse(setting(name))
    except ValueError as error:
        msg = f"{name} {error}"
        raise ImproperlyConfigured(msg) from None

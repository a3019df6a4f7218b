"""The settings of the boundary, read once into one frozen value."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings as django_settings

from facts.core.limits import Limits, limits_in
from facts.core.peers import Peer


@dataclass(frozen=True, slots=True, kw_only=True)
class FactSettings:
    zone: str
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
    limits = limits_in(django_settings.ERGON_FACT_LIMITS)
    return FactSettings(
        zone=django_settings.ERGON_ZONE,
        limits=limits,
        body_limit=limits.body,
        orphan_age=django_settings.ERGON_ORPHAN_AGE,
        verify_age=django_settings.ERGON_VERIFY_AGE,
        handoff_timeout=django_settings.ERGON_HANDOFF_TIMEOUT,
        waiting_fetches=django_settings.ERGON_WAITING_FETCHES,
        peers=django_settings.ERGON_PEERS,
        peer_tokens=django_settings.ERGON_PEER_TOKENS,
    )

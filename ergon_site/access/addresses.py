"""The address that a request is counted by, in throttles and in logs."""

from functools import cache
from typing import Any

import structlog

from ergon_site.access.conf import setting
from ergon_site.access.core import addresses
from ergon_site.access.core.addresses import Network

HEADER = "HTTP_X_FORWARDED_FOR"

log = structlog.get_logger("ergon.access")
_warned: set[str] = set()


def client_address(request: Any) -> str:
    """The address behind a request of Django or of the API.

    `X-Forwarded-For` counts only if one of ERGON_TRUSTED_PROXIES has sent the request.
    """
    connected, forwarded = request.META.get("REMOTE_ADDR", ""), request.META.get(HEADER, "")
    if forwarded and not is_trusted(connected):
        forwarded = ""
        if not _warned:  # once: a proxy may be missing from the settings, and all callers behind it count as one
            _warned.add(connected)
            log.warning("forwarded_address_ignored", address=connected, setting="ERGON_TRUSTED_PROXIES")
    return addresses.caller(connected, forwarded, trusted_proxies())


def is_trusted(address: str) -> bool:
    """Whether an address is that of a trusted proxy."""
    return addresses.is_among(address, trusted_proxies())


def trusted_proxies() -> tuple[Network, ...]:
    """The networks of ERGON_TRUSTED_PROXIES, which a project may name in texts."""
    return _networks(tuple(setting("ERGON_TRUSTED_PROXIES")))


@cache  # by what the setting says: another value is another entry
def _networks(told: tuple[str | Network, ...]) -> tuple[Network, ...]:
    return addresses.networks_in(told)

"""The address that a request is counted by, in throttles and in logs."""

from typing import Any

import structlog

from ergon_site.access.conf import setting
from ergon_site.access.core import addresses

HEADER = "HTTP_X_FORWARDED_FOR"

log = structlog.get_logger("ergon.access")
_warned: set[str] = set()


def client_address(request: Any) -> str:
    """The address behind a request of Django or of the API.

    `X-Forwarded-For` counts only if one of ERGON_TRUSTED_PROXIES has sent the request.
    """
    connected, forwarded = request.META.get("REMOTE_ADDR", ""), request.META.get(HEADER, "")
    if forwarded and not addresses.is_among(connected, setting("ERGON_TRUSTED_PROXIES")):
        forwarded = ""
        if not _warned:  # once: a proxy may be missing from the settings, and all callers behind it count as one
            _warned.add(connected)
            log.warning("forwarded_address_ignored", address=connected, setting="ERGON_TRUSTED_PROXIES")
    return addresses.caller(connected, forwarded, setting("ERGON_TRUSTED_PROXIES"))

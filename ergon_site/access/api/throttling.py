"""A client that calls too often is told when to come back. Each process counts for itself, in memory.

Callers are remembered by a digest, and at most `CALLERS_REMEMBERED` of them: what they send decides neither how much
memory is used nor, unless a trusted proxy says so, whose calls they count as.
"""

import math
import time
from collections import OrderedDict
from hashlib import blake2b
from threading import Lock

from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ergon_site.access import addresses, api_identity
from ergon_site.access.conf import setting
from ergon_site.access.core import limits
from ergon_site.access.core.limits import Verdict

CALLERS_REMEMBERED = 10_000
WRONG_TOKENS_PER_SECOND = 20.0

_busy_until: OrderedDict[bytes, float] = OrderedDict()
_lock = Lock()


class ClientRate(BaseThrottle):
    """The client's own rate, or the deployment's; where no token is needed, callers count by their address."""

    verdict: Verdict

    def allow_request(self, request: Request, view: object) -> bool:
        client = api_identity.caller_of(request) if request.auth else None
        caller = f"client:{client.client_id}" if client else f"address:{addresses.client_address(request)}"
        self.verdict = admit(caller, (client and client.rate) or setting("ERGON_API_RATE"))
        return self.verdict.is_admitted

    def wait(self) -> float:
        return math.ceil(self.verdict.retry_after)


def refuse_guessing(request: Request) -> None:
    """Slow down an address that presents wrong tokens."""
    verdict = admit(f"guesser:{addresses.client_address(request)}", WRONG_TOKENS_PER_SECOND)
    if not verdict.is_admitted:
        raise Throttled(math.ceil(verdict.retry_after))


def admit(caller: str, per_second: float) -> Verdict:
    key = blake2b(caller.encode(), digest_size=16).digest()
    with _lock:
        verdict = limits.admit(_busy_until.pop(key, 0.0), time.monotonic(), per_second)
        _busy_until[key] = verdict.busy_until
        if len(_busy_until) > CALLERS_REMEMBERED:
            _busy_until.popitem(last=False)
    return verdict


def remembered() -> int:
    return len(_busy_until)


def forget() -> None:
    with _lock:
        _busy_until.clear()

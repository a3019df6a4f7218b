"""A client that calls too often is told when to come back. Each process counts for itself, in memory."""

import math
import time
from collections import OrderedDict
from threading import Lock

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from ergon_site.access import callers
from ergon_site.access.core import rate

CALLERS_REMEMBERED = 10_000

_busy_until: OrderedDict[str, float] = OrderedDict()
_lock = Lock()


class ClientRate(BaseThrottle):
    """The client's own rate, or the deployment's; a caller without a token counts by its address."""

    retry_after = 0.0

    def allow_request(self, request: Request, view: object) -> bool:
        client = callers.of(request) if request.auth else None
        caller = f"client:{client.client_id}" if client else f"address:{self.get_ident(request)}"
        per_second = (client and client.rate) or settings.ERGON_API_RATE
        with _lock:
            verdict = rate.admit(_busy_until.pop(caller, 0.0), time.monotonic(), per_second)
            _busy_until[caller] = verdict.busy_until
            if len(_busy_until) > CALLERS_REMEMBERED:
                _busy_until.popitem(last=False)
        self.retry_after = verdict.retry_after
        return verdict.is_admitted

    def wait(self) -> float:
        return math.ceil(self.retry_after)


def forget() -> None:
    """Let every caller start afresh."""
    with _lock:
        _busy_until.clear()

"""What the API's shell costs: a token, a scope and a rate checked, beside a bare APIView and a plain response."""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from benchmarks import goals as goals_of
from benchmarks.goals import Figure, at_most, ratio

CALLS, ROUNDS = 1000, 3


def main() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "ergon_site.settings",
            "ERGON_DATA_DIR": folder,
            "DATABASE_URL": f"sqlite:///{folder}/ergon.sqlite3",
            "ERGON_API_RATE": "100000/s",
        }
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        figures = goals(_compare(_contenders()))
    goals_of.show(figures)
    return figures


def goals(costs: Mapping[str, float] = MappingProxyType({})) -> list[Figure]:
    beside = ratio(costs.get("guarded APIView"), costs.get("bare APIView"))
    return [at_most("an `APIView` with token, scope and rate / a bare one", beside, None)]


def _contenders() -> dict[str, Callable[[], object]]:
    from django.http import JsonResponse
    from django.test import RequestFactory
    from rest_framework.request import Request
    from rest_framework.response import Response
    from rest_framework.views import APIView

    from ergon_site.access import api_identity, clients
    from ergon_site.access.clients import Grant

    class Bare(APIView):
        authentication_classes = permission_classes = throttle_classes = ()

        def get(self, request: Request) -> Response:
            return Response({"name": "bare"})

    class Guarded(APIView):
        required_scope = None

        def get(self, request: Request) -> Response:
            return Response({"name": api_identity.caller_of(request).name})

    token = clients.create("benchmark", Grant(scopes=["transactions:read"]), by="benchmark").token.text
    request = RequestFactory().get
    guarded, bare = Guarded.as_view(), Bare.as_view()
    return {
        "plain Django view": lambda: JsonResponse({"name": "bare"}),
        "bare APIView": lambda: bare(request("/")).render(),
        "guarded APIView": lambda: guarded(request("/", headers={"Authorization": f"Bearer {token}"})).render(),
    }


def _compare(contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            rounds[name].append(_microseconds(call))
    costs = {name: statistics.median(times) for name, times in rounds.items()}
    for name, times in rounds.items():
        print(f"{name:22} {costs[name]:8.0f} µs  ({min(times):.0f} to {max(times):.0f})")
    return costs


def _microseconds(call: Callable[[], object]) -> float:
    count = CALLS // 100 if "--quick" in sys.argv else CALLS
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count * 1e6

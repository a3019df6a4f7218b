"""What happens around every request."""

import time
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from ergon_site.access.telemetry import api_duration

Handler = Callable[[HttpRequest], HttpResponse]


def observe_api(get_response: Handler) -> Handler:
    """Measure calls of the API by route, never by address: addresses hold ids."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if not request.path.startswith("/api/"):
            return get_response(request)
        started = time.perf_counter()
        response = get_response(request)
        route = request.resolver_match.route if request.resolver_match else "unmatched"
        labels: dict[str, str | int] = {"method": request.method or "", "route": route, "status": response.status_code}
        api_duration.record(time.perf_counter() - started, labels)
        return response

    return middleware

"""Fragments: the part of a console page that refreshes itself, sent alone and only if it has changed.

A page is asked for its fragment at its own address, by the header that refreshes have: so its rights and filters are
those of the page. Its templates extend `fragment`, which then holds their block `live` and nothing around it.
"""

import re
from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.http import quote_etag

from ergon_site.access.database.clock import page_time
from ergon_site.access.middleware import REFRESH

TEMPLATE = "console/fragment.html"
# By it a page counts its times: neither the browser's clock nor the web server's decides.
TIME = "X-Ergon-Time"
# The time at which a fragment was read is no change of what it shows.
READ_AT = re.compile(rb'(?<=<p class="ergon-age")([^>]*>)Updated at <time.*?</time>', re.DOTALL)

View = Callable[..., Any]


def is_fragment(request: HttpRequest) -> bool:
    return REFRESH in request.headers


def conditional(view: View) -> View:
    """The view, whose fragments have an ETag: to a reader who has that one already only 304 is sent."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **options: Any) -> Any:
        response = view(request, *args, **options)
        if not is_fragment(request) or response.status_code != HTTPStatus.OK or response.streaming:
            return response
        response.headers[TIME] = page_time().isoformat()
        shown = READ_AT.sub(rb"\1", response.content)
        response.headers["ETag"] = quote_etag(blake2b(shown, digest_size=16).hexdigest())
        patch_vary_headers(response, [REFRESH])
        answered: Any = get_conditional_response(request, etag=response.headers["ETag"], response=response)
        answered.headers[TIME] = response.headers[TIME]  # also of a 304, which keeps few of them
        return answered

    return answer

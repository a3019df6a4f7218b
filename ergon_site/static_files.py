"""Static files, cached for ever under an address with a hash and compressed, and the compression of answers.

There is no `collectstatic`. WhiteNoise finds the files where their packages have them. The hash is one of all files
together and stands before their names, so that what a style sheet refers to by a relative address has it as well.
"""

import gzip
import re
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from django.utils.cache import patch_vary_headers
from whitenoise.middleware import WhiteNoiseMiddleware

from ergon_site.access.middleware import API

FOREVER = "max-age=315360000, public, immutable"
HASH = re.compile(r"[0-9a-f]{12}")
COMPRESSIBLE = ("text/", "image/svg", "application/json", "application/javascript", "application/manifest")
# What asks for a part, or whether anything has changed, is answered by WhiteNoise.
CONDITIONS = ("HTTP_RANGE", "HTTP_IF_MODIFIED_SINCE", "HTTP_IF_NONE_MATCH")
MANY_FILES = 500
# Of answers of the API: below this the headers outweigh what is saved, and above it another copy would cost too much.
LEAST, MOST = 1024, 4 * 1024 * 1024
QUICKLY = 1


@cache
def fingerprint() -> str:
    """The hash of all static files; the same on every host of a release."""
    files = {path: storage for finder in reversed(list(finders.get_finders())) for path, storage in finder.list(None)}
    digest = blake2b(digest_size=6)
    for path, storage in sorted(files.items()):
        digest.update(path.encode() + b"\0" + Path(storage.path(path)).read_bytes())
    return digest.hexdigest()


class HashedAddresses(StaticFilesStorage):
    """Says where a static file is: `/static/HASH/name`."""

    def url(self, name: str | None) -> str:
        return super().url(f"{fingerprint()}/{(name or '').lstrip('/')}")


class StaticFiles(WhiteNoiseMiddleware):
    """Gives out static files. One under the hash of another release is given too, but not to be kept."""

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        name = request.path_info.removeprefix(self.static_prefix)
        first, _, rest = name.partition("/")
        is_hashed = name != request.path_info and HASH.fullmatch(first) is not None
        address = f"{self.static_prefix}{rest}" if is_hashed else request.path_info
        found = self.find_file(address) if self.autorefresh else self.files.get(address)
        if found is None:
            answer: HttpResponseBase = self.get_response(request)
            return answer
        answer = _compressed(found, request) or self.serve(found, request)
        # A developer changes files under a process that runs on.
        if is_hashed and first == fingerprint() and not settings.DEBUG:
            answer["Cache-Control"] = FOREVER
        return answer


class CompressedAnswers(GZipMiddleware):
    """Compresses pages, exports, and large answers of the API, but for artifacts, which are asked for in parts.

    What a page holds cannot be guessed by how well it compresses together with what somebody makes its reader send
    (BREACH): Django masks the CSRF token anew in each answer, and makes each answer longer by chance. Nobody can make
    the reader of an answer of the API send anything, since no browser sends its token by itself. That answer is
    compressed without chance, and quickly.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if not request.path_info.startswith(API):
            compressed: HttpResponseBase = super().process_response(request, response)
            return compressed
        # An ETag is that of exactly these bytes, and changes are based on it.
        if isinstance(response, HttpResponse) and LEAST <= len(response.content) <= MOST and "ETag" not in response:
            patch_vary_headers(response, ["Accept-Encoding"])
            if "gzip" in request.headers.get("Accept-Encoding", ""):
                response.content = gzip.compress(response.content, QUICKLY, mtime=0)
                response["Content-Encoding"], response["Content-Length"] = "gzip", str(len(response.content))
        return response


def _compressed(found: Any, request: HttpRequest) -> HttpResponse | None:
    """A whole file, compressed once for all who ask; None where that is not asked for or of no use."""
    accepts = "gzip" in request.headers.get("Accept-Encoding", "")
    if request.method != "GET" or not accepts or any(one in request.META for one in CONDITIONS):
        return None
    answer = found.get_response(request.method, request.META)
    headers = dict(answer.headers)
    if not headers.get("Content-Type", "").startswith(COMPRESSIBLE):
        answer.file.close()
        return None
    with answer.file:
        body = _gzipped(answer.file.name, headers["Last-Modified"])
    # Length and ETag are those of what is not compressed.
    kept = {name: value for name, value in headers.items() if name not in {"Content-Length", "ETag"}}
    response = HttpResponse(body, headers={**kept, "Content-Encoding": "gzip", "Content-Length": str(len(body))})
    patch_vary_headers(response, ["Accept-Encoding"])
    return response


@lru_cache(maxsize=MANY_FILES)
def _gzipped(path: str, _last_modified: str) -> bytes:
    return gzip.compress(Path(path).read_bytes(), mtime=0)

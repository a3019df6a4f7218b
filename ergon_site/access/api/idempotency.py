"""`Idempotency-Key`: a request that is sent again gets the answer that it got."""

import json
from collections.abc import Callable
from hashlib import sha256

from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from ergon_site.access import api_identity, idempotency
from ergon_site.access.idempotency import Answer, Asked

HEADER = "Idempotency-Key"
REPEATED = "Idempotency-Replayed"
LONGEST = 200
KEY = OpenApiParameter(
    HEADER,
    str,
    OpenApiParameter.HEADER,
    description="Up to 200 printable ASCII characters. The same request under the same key is carried out once.",
)


def answer_once(request: Request, act: Callable[[], Answer]) -> Response:
    """The answer of `act`, or the stored answer if the client has used the key before."""
    key = request.headers.get(HEADER)
    if key is None:
        answer = act()
    else:
        if not 0 < len(key) <= LONGEST or not (key.isascii() and key.isprintable()):
            msg = f"{HEADER} must have 1 to {LONGEST} printable ASCII characters."
            raise ParseError(msg)
        # Of the value, not of its spelling: spaces and the order of fields change nothing.
        body = json.dumps(request.data, sort_keys=True, separators=(",", ":"))
        digest = sha256(f"{request.path}\n{body}".encode()).hexdigest()
        asked = Asked(client_id=api_identity.caller_of(request).client_id, key=key, digest=digest)
        answer = idempotency.answer(asked, act)
    headers = {REPEATED: "true"} if answer.is_repeated else None
    return Response(answer.body, status=answer.status, headers=headers)

"""`If-Match` and `If-None-Match`: nobody overwrites what they have not read.

Both are told as the number of the version that must be in force: 0 if there must be none yet, None if any will do.
"""

from http import HTTPStatus

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from ergon_site.access.api.problems import Problem

# What no version has: it never matches.
NONE_OF_OURS = -1
LONGEST = 9
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description='The active version that the change is based on, such as `"3"`.',
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="`*`, to create a policy that does not exist yet."
)


def of_change(request: Request) -> int | None:
    """The version that a change of something that exists expects."""
    tag = request.headers.get("If-Match")
    if tag is None:
        detail = "Send the version that you have read in If-Match; to create a policy, send If-None-Match: *."
        raise Problem(HTTPStatus.PRECONDITION_REQUIRED, "precondition_required", detail)
    if tag.strip() == "*":
        return None
    digits = tag.strip().removeprefix('"').removesuffix('"')
    is_ours = digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST and int(digits) > 0
    return int(digits) if is_ours else NONE_OF_OURS


def of_writing(request: Request) -> int | None:
    """The same, or 0 for the first version."""
    if "If-Match" not in request.headers and request.headers.get("If-None-Match", "").strip() == "*":
        return 0
    return of_change(request)


def etag(number: int) -> dict[str, str]:
    return {"ETag": f'"{number}"'}

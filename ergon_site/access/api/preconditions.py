"""`If-Match` and `If-None-Match`: nobody overwrites what they have not read."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The version that must be in force: 0 if there must be none, None if any will do."""

    expected: int | None

    @property
    def is_for_new(self) -> bool:
        return self.expected == 0


def of_change(request: Request) -> Condition:
    """The precondition of a change of something that exists."""
    tag = request.headers.get("If-Match")
    if tag is None:
        detail = "Send the version that you have read in If-Match; to create a policy, send If-None-Match: *."
        raise Problem(HTTPStatus.PRECONDITION_REQUIRED, "precondition_required", detail)
    if tag.strip() == "*":
        return Condition(expected=None)
    digits = tag.strip().removeprefix('"').removesuffix('"')
    is_ours = digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST and int(digits) > 0
    return Condition(expected=int(digits) if is_ours else NONE_OF_OURS)


def of_writing(request: Request) -> Condition:
    """The same, or that there is none yet."""
    if "If-Match" not in request.headers and request.headers.get("If-None-Match", "").strip() == "*":
        return Condition(expected=0)
    return of_change(request)


def etag(number: int) -> dict[str, str]:
    return {"ETag": f'"{number}"'}

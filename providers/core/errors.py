"""The errors of providers. One root; each class states its reason code, and whether a retry can help."""

import errno
import json
import math
import socket
import ssl
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from engines.core.text_redaction import redact_text

LONGEST_MESSAGE = 500
DEEPEST = 10


class ProviderError(Exception):
    """The root of everything that a call to a provider ends with."""

    reason_code = "internal_error"
    retryable = False

    def __init__(
        self,
        message: str = "",
        *,
        http_status: int | None = None,
        retry_after: float | None = None,
        never_left: bool = False,
        is_passing: bool = False,
    ) -> None:
        self.message = excerpt(message) or (self.__doc__ or "").partition("\n")[0]
        super().__init__(self.message)
        self.http_status = status_in(http_status)
        self.retry_after = seconds_in(retry_after)
        self.never_left = never_left  # the request certainly did not reach the provider
        self.is_passing = is_passing  # it says nothing of the provider: whoever may return does


class ProviderTimeoutError(ProviderError):
    """The provider did not answer in time."""

    reason_code = "timeout"
    retryable = True


class ProviderConnectionError(ProviderError):
    """The provider could not be reached, or hung up."""

    reason_code = "connection_error"
    retryable = True


class ProviderRateLimitError(ProviderError):
    """The provider asks for fewer calls."""

    reason_code = "rate_limited"
    retryable = True


class ProviderAuthError(ProviderError):
    """The provider does not accept our credentials."""

    reason_code = "auth_failed"


class ProviderQuotaExceededError(ProviderError):
    """The calls that this window allows are spent."""

    reason_code = "quota_exhausted"


class ProviderBadRequestError(ProviderError):
    """The provider does not accept what was asked."""

    reason_code = "bad_request"


class ProviderResponseFormatError(ProviderError):
    """The provider's answer cannot be read."""

    reason_code = "response_invalid"


class ProviderDependencyError(ProviderError):
    """The provider, or something that the call needs, is not available."""

    reason_code = "dependency_unavailable"
    retryable = True


class ProviderCircuitOpenError(ProviderError):
    """The breaker is open: the provider is left alone for a while."""

    reason_code = "circuit_open"


class ProviderCancelledError(ProviderError):
    """The caller broke the call off before the provider had answered."""

    reason_code = "cancelled"


class ProviderInternalError(ProviderError):
    """The call failed in a way that nobody foresaw."""


class ProviderUsageError(RuntimeError):
    """A provider was called in a way that is a mistake of the program: it raises, and nothing was called."""


BY_REASON = {kind.reason_code: kind for kind in ProviderError.__subclasses__()}
REASON_CODES = tuple(BY_REASON)

_BY_STATUS: dict[int, type[ProviderError]] = {
    HTTPStatus.UNAUTHORIZED: ProviderAuthError,
    HTTPStatus.FORBIDDEN: ProviderAuthError,
    HTTPStatus.REQUEST_TIMEOUT: ProviderTimeoutError,
    HTTPStatus.TOO_MANY_REQUESTS: ProviderRateLimitError,
    HTTPStatus.GATEWAY_TIMEOUT: ProviderTimeoutError,
}
# Errors of libraries that the core does not import, by the names of their classes.
_BY_NAME: dict[str, type[ProviderError]] = {
    "SoftTimeLimitExceeded": ProviderTimeoutError,
    "TimeoutException": ProviderTimeoutError,
    "Timeout": ProviderTimeoutError,
    "ConnectTimeout": ProviderTimeoutError,
    "TransportError": ProviderConnectionError,
    "ConnectionError": ProviderConnectionError,
    "ClientConnectionError": ProviderConnectionError,
    "NewConnectionError": ProviderConnectionError,
    "ChunkedEncodingError": ProviderConnectionError,
    "IncompleteRead": ProviderConnectionError,
    "DecodingError": ProviderResponseFormatError,
}
_NETWORK = {
    *(errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.ENETRESET, errno.ENOTCONN),
    errno.EADDRNOTAVAIL,
}
_NEVER_LEFT = {
    *("ConnectError", "ConnectTimeout", "PoolTimeout", "ConnectionRefusedError", "gaierror"),
    *("ClientConnectorError", "NewConnectionError", "SSLCertVerificationError"),
}
# Of a pool that is too small for its callers the provider knows nothing.
_OURS = {"PoolTimeout", "EmptyPoolError"}


def canonical(error: BaseException) -> ProviderError:
    """The error as one of ours; what it came from stays its cause."""
    if isinstance(error, ProviderError):
        return error
    # The status of an answer that a client library made an error of.
    answer = getattr(error, "response", None)
    status = status_in(getattr(answer, "status_code", None) if answer is not None else getattr(error, "code", None))
    # The error that a client library wraps, as urllib does in `reason`.
    origin = error
    for _ in range(DEEPEST):
        if not isinstance(reason := getattr(origin, "reason", None), BaseException):
            break
        origin = reason
    kind = _kind_of(origin) if status is None else kind_of_status(status)
    names = {one.__name__ for one in type(origin).__mro__}
    found = kind(
        error_text(error),
        http_status=status,
        never_left=status is None and not names.isdisjoint(_NEVER_LEFT),
        is_passing=not names.isdisjoint(_OURS),
    )
    found.__cause__ = error
    return found


def from_status(status: int, message: str = "", *, retry_after: float | None = None) -> ProviderError:
    """The error of an HTTP status that is not a success."""
    return kind_of_status(status)(message or f"HTTP {status}", http_status=status, retry_after=retry_after)


def kind_of_status(status: int) -> type[ProviderError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return ProviderBadRequestError
    is_theirs = HTTPStatus.INTERNAL_SERVER_ERROR <= status < 600  # noqa: PLR2004 (the end of the range)
    return ProviderDependencyError if is_theirs else ProviderInternalError


def status_in(value: Any) -> int | None:
    """An HTTP status, as a provider's author may write it; None if it is none."""
    is_status = isinstance(value, int) and 100 <= value < 1000  # noqa: PLR2004 (three digits)
    return int(value) if is_status else None


def seconds_in(value: Any) -> float | None:
    """A number of seconds, as a provider's author may write it; None if it is none."""
    try:
        seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def excerpt(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """The beginning of a text, with a stand-in wherever it looks like a secret."""
    # Cut generously first, so that a long body costs nothing, and exactly afterwards: a stand-in may be longer.
    return redact_text(str(text)[: 4 * longest])[:longest]


def error_text(error: BaseException) -> str:
    """The text of an error, or its class name if it has none or raises."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 (its own __str__ is broken)
        return type(error).__name__


def _kind_of(error: BaseException) -> type[ProviderError]:
    if isinstance(error, TimeoutError):
        return ProviderTimeoutError
    if isinstance(error, ConnectionError | socket.gaierror | ssl.SSLError):
        return ProviderConnectionError
    if isinstance(error, OSError) and error.errno in _NETWORK:
        return ProviderConnectionError
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return ProviderResponseFormatError
    for one in type(error).__mro__:
        if one.__name__ in _BY_NAME:
            return _BY_NAME[one.__name__]
    return ProviderInternalError

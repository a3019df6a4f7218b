"""Errors of providers: each class states its reason, and whatever is raised becomes one of them."""

import errno
import json
import math
import socket
import ssl
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pytest

from providers.core import errors, retry as retry_after
from providers.core.breaker import Verdict, verdict_of
from providers.core.errors import (
    ProviderAuthError,
    ProviderBadRequestError,
    ProviderCircuitOpenError,
    ProviderConnectionError,
    ProviderDependencyError,
    ProviderError,
    ProviderInternalError,
    ProviderQuotaExceededError,
    ProviderRateLimitError,
    ProviderResponseFormatError,
    ProviderTimeoutError,
    canonical,
    excerpt,
    from_status,
)
from tests.broken_errors import MuteError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "reason", "retryable"),
    [
        (ProviderTimeoutError, "timeout", True),
        (ProviderConnectionError, "connection_error", True),
        (ProviderRateLimitError, "rate_limited", True),
        (ProviderAuthError, "auth_failed", False),
        (ProviderQuotaExceededError, "quota_exhausted", False),
        (ProviderBadRequestError, "bad_request", False),
        (ProviderResponseFormatError, "response_invalid", False),
        (ProviderDependencyError, "dependency_unavailable", True),
        (ProviderCircuitOpenError, "circuit_open", False),
        (ProviderInternalError, "internal_error", False),
    ],
)
def test_every_class_states_its_reason(kind: type[ProviderError], reason: str, retryable: bool) -> None:  # noqa: FBT001
    assert (kind.reason_code, kind.retryable, errors.BY_REASON[reason]) == (reason, retryable, kind)
    assert str(kind())


class TransportError(Exception):
    """As of a library that the core does not know."""


class ConnectError(TransportError):
    pass


class SoftTimeLimitExceeded(Exception):  # noqa: N818 (a library's name)
    pass


class StatusError(Exception):
    def __init__(self, status: Any) -> None:
        super().__init__("bad answer")
        self.response = SimpleNamespace(status_code=status)


class CodeError(OSError):
    code = 503


class RingError(Exception):
    @property
    def reason(self) -> Exception:
        return self


def of_a_library(name: str, *bases: type[Exception]) -> Exception:
    """An error as of a library that the core does not know."""
    kind: type[Exception] = type(name, bases or (OSError,), {})
    return kind()


@pytest.mark.parametrize(
    ("error", "kind", "never_left"),
    [
        (TimeoutError(), ProviderTimeoutError, False),
        (ConnectionResetError(), ProviderConnectionError, False),
        (ConnectionRefusedError(), ProviderConnectionError, True),
        (socket.gaierror(), ProviderConnectionError, True),
        (URLError(ConnectionRefusedError()), ProviderConnectionError, True),
        (URLError(TimeoutError()), ProviderTimeoutError, False),
        (URLError("no host given"), ProviderInternalError, False),
        (RingError(), ProviderInternalError, False),
        (OSError(errno.EHOSTUNREACH, "no route"), ProviderConnectionError, False),
        (OSError(errno.ENETUNREACH, "no network"), ProviderConnectionError, False),
        (OSError(errno.ENOSPC, "no space"), ProviderInternalError, False),
        (ssl.SSLError(), ProviderConnectionError, False),
        (ssl.SSLCertVerificationError(), ProviderConnectionError, True),
        (of_a_library("ConnectionError"), ProviderConnectionError, False),
        (of_a_library("ConnectTimeout", type("ConnectionError", (OSError,), {})), ProviderTimeoutError, True),
        (json.JSONDecodeError("no", "x", 0), ProviderResponseFormatError, False),
        (TransportError(), ProviderConnectionError, False),
        (ConnectError(), ProviderConnectionError, True),
        (SoftTimeLimitExceeded(), ProviderTimeoutError, False),
        (StatusError(429), ProviderRateLimitError, False),
        (StatusError("odd"), ProviderInternalError, False),
        (CodeError(), ProviderDependencyError, False),
        (MuteError(), ProviderInternalError, False),
        (ValueError("a bug"), ProviderInternalError, False),
    ],
)
def test_whatever_is_raised_becomes_one_of_ours(
    error: Exception,
    kind: type[ProviderError],
    never_left: bool,  # noqa: FBT001
) -> None:
    found = canonical(error)
    assert (type(found), found.__cause__, found.never_left) == (kind, error, never_left)
    assert canonical(found) is found


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "auth_failed"),
        (403, "auth_failed"),
        (408, "timeout"),
        (429, "rate_limited"),
        (404, "bad_request"),
        (422, "bad_request"),
        (500, "dependency_unavailable"),
        (503, "dependency_unavailable"),
        (504, "timeout"),
        (302, "internal_error"),
        (600, "internal_error"),
    ],
)
def test_every_status_has_its_meaning(status: int, reason: str) -> None:
    error = from_status(status, retry_after=3)
    assert (error.reason_code, error.http_status, error.retry_after) == (reason, status, 3)


@pytest.mark.parametrize(
    "text",
    [
        "https://ada:secret@host/",
        "Authorization: Bearer secretsecret",
        'api_key="secret"',
        "password=secret&x=1",
        "{'X-Auth-Token': 'secret'}",
        "https://secret@host/",
        "pwd=secret",
        "?x=1&sig=secret",
        "credential=secret credentials: secret",
        "private_key: secret",
        "private_key: -----BEGIN RSA PRIVATE KEY-----\nsecret\nsecret\n-----END RSA PRIVATE KEY-----",
        "Cookie: theme=dark; session=secret",
        '{"client_secret": "abc\\"secret", "x": 1}',
        repr('{"client_secret": "abc\\"secret", "x": 1}'),
        '{\\"password\\": \\"very secret\\"}',
    ],
)
def test_secrets_do_not_get_into_messages(text: str) -> None:
    assert "secret" not in str(ProviderError(text)).replace("_secret", "")


@pytest.mark.parametrize(
    "text", ["design=oak", "signal: lost", "bypass=1", "https://host/a@b", "see https://host, a@b"]
)
def test_what_only_looks_like_a_secret_is_told(text: str) -> None:
    assert str(ProviderError(text)) == text


def test_an_excerpt_is_short() -> None:
    assert len(excerpt("x" * 10_000)) == 500


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("120", 120.0),
        (" 1.5 ", 1.5),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 00:01:00 -0000", 60.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_read_in_seconds_or_as_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after.seconds_of(header, NOW) == seconds


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (SimpleNamespace(response=SimpleNamespace(headers={"Retry-After": "7"})), 7.0),
        (SimpleNamespace(response=None, headers={"Retry-After": "7"}), 7.0),
        (SimpleNamespace(headers={"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT"}), 60.0),
        (
            SimpleNamespace(
                headers={"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT", "Date": "Thu, 01 Jan 2026 00:00:50 -0000"}
            ),
            10.0,
        ),
        (SimpleNamespace(headers={"Retry-After": "Thu, 01 Jan 2026 00:01:00 GMT", "Date": "today"}), 60.0),
        (SimpleNamespace(headers={"Date": "Thu, 01 Jan 2026 00:00:50 GMT"}), None),
        (SimpleNamespace(headers={"Retry-After": b"7"}), None),
        (SimpleNamespace(response={"headers": {"Retry-After": "7"}}), None),
        (SimpleNamespace(headers=None), None),
        (SimpleNamespace(headers=SimpleNamespace(get="Retry-After")), None),
        (None, None),
    ],
)
def test_the_pause_behind_a_client_librarys_error_is_found(error: Any, seconds: float | None) -> None:
    assert retry_after.requested_pause(error, NOW) == seconds


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("30", 30.0),
        (timedelta(minutes=1), 60.0),
        (Decimal("1.5"), 1.5),
        (None, None),
        ("soon", None),
        (math.nan, None),
        (-1, None),
        (10**400, None),
    ],
)
def test_a_pause_is_read_as_authors_write_it(given: Any, seconds: float | None) -> None:
    assert errors.ProviderRateLimitError(retry_after=given).retry_after == seconds


@pytest.mark.parametrize(
    ("given", "status"), [(429, 429), (HTTPStatus.OK, 200), (99999, None), ("429", None), (math.nan, None)]
)
def test_a_status_is_one_of_http_or_none(given: Any, status: int | None) -> None:
    assert errors.ProviderError(http_status=given).http_status == status


def test_a_pool_that_is_too_small_says_nothing_of_the_provider() -> None:
    class PoolTimeout(TimeoutError):  # noqa: N818 (as httpx calls it)
        """Of httpx, by its name."""

    found = errors.canonical(PoolTimeout("no connection is free"))
    assert (found.reason_code, found.never_left, found.is_passing) == ("timeout", True, True)
    assert verdict_of(found) is Verdict.NEUTRAL

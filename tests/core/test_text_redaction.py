"""Secrets in messages and tracebacks: what is hidden, and what is not."""

import pytest

from engines.core.redaction import HIDDEN
from engines.core.text_redaction import redact_line, redact_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://ada:pa:ss@db:5432/x is gone", f"postgres://{HIDDEN}@db:5432/x is gone"),
        ("GET https://x.org/?token=abc&page=2", f"GET https://x.org/?token={HIDDEN}&page=2"),
        ("Authorization: Bearer abcdefgh", f"Authorization: {HIDDEN}"),
        ("two hosts: amqp://a:b@one amqp://c:d@two", f"two hosts: amqp://{HIDDEN}@one amqp://{HIDDEN}@two"),
        ("no such file: /tmp/x", "no such file: /tmp/x"),
        ("", ""),
    ],
)
def test_a_secret_is_hidden_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_what_is_hidden_stays_hidden() -> None:
    once = redact_text("https://ada:secret@host/?api_key=secret")
    assert redact_text(once) == once


def test_a_text_of_any_length_is_redacted() -> None:
    filler = "password" * 50_000
    assert redact_text(f'{filler} token="secret"') == f"{filler} token={HIDDEN}"


def test_a_private_key_is_hidden_line_by_line_and_what_follows_it_stays() -> None:
    lines = ["bad key -----BEGIN PRIVATE KEY-----", "MIIEsecret", "lines", "-----END PRIVATE KEY-----", "and so on"]
    shown, is_in_key = [], False
    for line in lines:
        text, is_in_key = redact_line(line, is_in_key=is_in_key)
        shown.append(text)
    assert shown == [f"bad key {HIDDEN}", HIDDEN, HIDDEN, HIDDEN, "and so on"]

"""Hides secrets in messages and tracebacks: passwords in URLs, tokens, keys, cookies."""

import re

from engines.core.redaction import HIDDEN

_NAMES = (
    r"password|passwd|passphrase|pwd|secret|token|credential|signature"
    r"|(?:api|access|private|account)[_-]?key|(?<![a-z])(?:sig|pass)(?![\w-])"
)
# A backslash before the quote keeps it open, and so do several: a text may have been written twice.
_QUOTED = r"\"(?:[^\"\\\n]|\\++.)*+\"|'(?:[^'\\\n]|\\++.)*+'|\\++[\"'][^\"'\\\n]*+"
_IS = r"[\w-]{0,40}+[\\\"']{0,4}+\s{0,9}+[=:]\s{0,9}+"
_KEY_BEGINS = "-----BEGIN PRIVATE KEY-----"
_KEY_GOES_ON = re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]*\Z")
# No pattern tries again what it has read, so that a long text costs little.
_SECRETS = (
    (re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"), HIDDEN),
    # https://user:password@host, https://token@host
    (re.compile(r"(?<=://)(?:[^/\s?#\"'<>@]{0,300}+@)++"), f"{HIDDEN}@"),
    (re.compile(r"(?i)\b(bearer|basic|token)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    # Of these, everything up to the end of the line.
    (re.compile(rf"(?i)((?:authorization|cookie){_IS}[\\\"']{{0,4}}+)[^\n\\\"']++"), rf"\1{HIDDEN}"),
    (re.compile(rf"(?i)((?:{_NAMES}){_IS})(?:{_QUOTED}|[^\s&,;}}]++)"), rf"\1{HIDDEN}"),
)


def redact_text(text: str) -> str:
    """The text with a stand-in for everything that looks like a secret."""
    for pattern, stand_in in _SECRETS:
        text = pattern.sub(stand_in, text)
    return text


def redact_line(line: str, *, is_in_key: bool) -> tuple[str, bool]:
    """The same for a line of a text that is read line by line; and whether a private key goes on in the next one."""
    text = f"{_KEY_BEGINS}{line}" if is_in_key else line
    return redact_text(text), _KEY_GOES_ON.search(text) is not None

"""Names of artifacts, and their digests here and in HTTP."""

import base64
import binascii
import re
from enum import StrEnum

from facts.core.errors import refuse
from facts.core.texts import has_controls

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
LONGEST_KEY = 1024
# What an index of PostgreSQL holds beside the longest bucket.
LONGEST_KEY_BYTES = 2560

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 (a token of HTTP)
MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(;[ \t!-~]*)?")
LONGEST_MEDIA_TYPE = 255
UNKNOWN_TYPE = "application/octet-stream"

PREFIX = "sha256:"
DIGEST_SIZE = 32
_MEMBER = re.compile(r"\s*([a-z*][a-z0-9_.*-]*)\s*=\s*:([A-Za-z0-9+/=]*):\s*")


class Damage(StrEnum):
    MISSING = "missing"
    CORRUPT = "corrupt"


def check_name(bucket: str, key: str) -> None:
    """Refuse a bucket or a key that is none."""
    if not BUCKET.fullmatch(bucket):
        refuse("/bucket", "must have 3 to 63 of a-z, 0-9, dot and hyphen, and a letter or digit at both ends")
    if not 0 < len(key) <= LONGEST_KEY:
        refuse("/key", f"must have 1 to {LONGEST_KEY:,} characters")
    if has_controls(key):
        refuse("/key", "must have no control characters")
    if len(key.encode()) > LONGEST_KEY_BYTES:
        refuse("/key", f"must take at most {LONGEST_KEY_BYTES:,} bytes as UTF-8")
    if "\\" in key:
        refuse("/key", "must have no backslashes")
    if {"", ".", ".."} & set(key.split("/")):
        refuse("/key", "must have no empty part between slashes, and none that is . or ..")


def check_media_type(media_type: str) -> None:
    if len(media_type) > LONGEST_MEDIA_TYPE or not MEDIA_TYPE.fullmatch(media_type):
        refuse("/media_type", f"must look like application/pdf, in at most {LONGEST_MEDIA_TYPE} characters")


def digest_in(header: str) -> str:
    """The SHA-256 that a `Content-Digest` (RFC 9530) announces. One that could not be checked is refused."""
    members = [_MEMBER.fullmatch(member) for member in header.split(",")]
    found = {parts[1]: parts[2] for parts in members if parts}
    if None in members or "sha-256" not in found:
        refuse("/Content-Digest", "must look like sha-256=:BASE64:")
    try:
        raw = base64.b64decode(found["sha-256"], validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != DIGEST_SIZE:
        refuse("/Content-Digest", f"must have {DIGEST_SIZE} bytes as its sha-256, in base64")
    return PREFIX + raw.hex()


def digest_header(digest: str) -> str:
    """A digest as RFC 9530 writes it."""
    raw = bytes.fromhex(digest.removeprefix(PREFIX))
    return f"sha-256=:{base64.b64encode(raw).decode()}:"

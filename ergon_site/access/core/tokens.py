"""API tokens: what they look like and what is kept of them.

A token is `ergon_PREFIX_SECRET`. The prefix is public: it names the token in lists and logs. Of the rest only a digest
is kept. The secret has 256 bits of chance, so one fast hash is enough: there is nothing to guess.
"""

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass

PREFIX_BYTES = 5
SECRET_BYTES = 32
ENTROPY = PREFIX_BYTES + SECRET_BYTES
# As `mint` writes them: nothing else is looked up, or sent to a peer.
_FORM = re.compile(r"ergon_(?P<prefix>[a-z2-7]{8})_[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token in the clear; shown once and never stored."""

    prefix: str
    text: str

    def __repr__(self) -> str:
        return f"Token({self.prefix})"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def matches(self, digest: str) -> bool:
        return hmac.compare_digest(self.digest, digest)


def mint(chance: bytes) -> Token:
    """The token made from that many random bytes."""
    prefix = base64.b32encode(chance[:PREFIX_BYTES]).decode().lower()
    secret = base64.urlsafe_b64encode(chance[PREFIX_BYTES:ENTROPY]).decode().rstrip("=")
    return Token(prefix=prefix, text=f"ergon_{prefix}_{secret}")


def parse(text: str) -> Token | None:
    """The token in a request, or None if it cannot be one."""
    found = _FORM.fullmatch(text)
    return Token(prefix=found["prefix"], text=text) if found else None

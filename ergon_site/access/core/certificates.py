"""Certificates that a proxy has verified: what tells whose they are."""

from ergon_site.access.core.terms import UnusableTermError

LONGEST = 500


class UnusableIdentityError(UnusableTermError):
    """A text that no proxy tells."""


def identity(text: str) -> str:
    """A subject or a fingerprint, letter by letter as the proxy tells it: nothing in it is folded or reordered.

    Web servers lose other characters than ASCII on the way; proxies escape them.
    """
    told = text.strip(" \t")
    if not 0 < len(told) <= LONGEST or not told.isascii() or not told.isprintable():
        msg = f"A certificate's identity must be 1 to {LONGEST} printable ASCII characters."
        raise UnusableIdentityError(msg)
    return told

"""The rules for an API client's name, certificate, grants, rate and lifetime."""

from collections.abc import Iterable
from datetime import timedelta

LONGEST_NAME = 100
LONGEST_ITEM = 256
LONGEST_CERTIFICATE = 500
LONGEST_TIME = timedelta(days=36_500)
# A call in eleven days, and more than any machine answers: beyond that, numbers of seconds cease to be of use.
SLOWEST, FASTEST = 1e-6, 1e9


class UnusableTermError(ValueError):
    """A value that no client can have."""


class UnusableIdentityError(UnusableTermError):
    """A text that no proxy tells."""


def check_name(name: str) -> None:
    _check_text("A client's name", name, LONGEST_NAME)


def certificate_identity(text: str) -> str:
    """The subject or fingerprint of a certificate, letter by letter as the proxy that verified it tells it.

    Nothing in it is folded or reordered. Web servers lose other characters than ASCII on the way; proxies escape them.
    """
    told = text.strip(" \t")
    if not 0 < len(told) <= LONGEST_CERTIFICATE or not told.isascii() or not told.isprintable():
        msg = f"A certificate's identity must be 1 to {LONGEST_CERTIFICATE} printable ASCII characters."
        raise UnusableIdentityError(msg)
    return told


def check_items(what: str, items: Iterable[str]) -> None:
    for item in items:
        _check_text(f"An entry of {what.replace('_', ' ')}", item, LONGEST_ITEM)


def check_rate(rate: float | None) -> None:
    # Not a number is neither above nor below anything.
    if rate is not None and not SLOWEST <= rate <= FASTEST:
        msg = f"The rate must be a number above 0, from {SLOWEST:g} to {FASTEST:g} requests a second."
        raise UnusableTermError(msg)


def check_time(what: str, time: timedelta | None) -> None:
    if time is not None and not timedelta(0) <= time <= LONGEST_TIME:
        msg = f"The {what} must be at most {LONGEST_TIME.days:,} days, and not below 0."
        raise UnusableTermError(msg)


def _check_text(what: str, text: str, longest: int) -> None:
    if not 0 < len(text) <= longest or not text.isprintable() or text != text.strip():
        msg = f"{what} has 1 to {longest} printable characters, and no blanks around it."
        raise UnusableTermError(msg)

"""Certificates that a proxy has verified: what tells whose they are, and which proxies are believed."""

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from ergon_site.access.core.terms import UnusableTermError

LONGEST = 500

Network = IPv4Network | IPv6Network


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


def is_among(address: str, networks: Iterable[Network]) -> bool:
    """Whether a request comes from one of these networks; one without an address comes from nowhere."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped:
        found = found.ipv4_mapped
    return any(found in network for network in networks)

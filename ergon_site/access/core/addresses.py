"""Addresses of callers: that of the connection, or the one that a trusted proxy has forwarded."""

import re
from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

UNKNOWN = "unknown"
# Proxies in a row; what a header names before them is not looked at, however long it is.
MOST_PROXIES = 10
# The smallest part of IPv6 that is given to one customer: whoever has it may use any address in it.
SMALLEST_NETWORK = 64
_WITH_PORT = re.compile(r"\[(?P<v6>[^\]]+)\](?::\d+)?|(?P<v4>[\d.]+):\d+")


def caller(connected: str, forwarded: str, trusted: Collection[Network]) -> str:
    """The address to count a request by: of the connection, or the last that no trusted proxy has.

    Proxies append the address that they were called from, so the header is read from its end. What stands before the
    first address that is not a trusted proxy was written by the caller, and means nothing.
    """
    found = parse(connected)
    if found is None:
        return UNKNOWN
    for text in reversed(forwarded.rsplit(",", MOST_PROXIES)[-MOST_PROXIES:]):
        before = parse(text)
        if before is None or not any(found in network for network in trusted):
            break
        found = before
    if isinstance(found, IPv4Address):
        return str(found)
    return str(ip_network((found.packed, SMALLEST_NETWORK), strict=False))


def networks_in(told: Iterable[str | Network]) -> tuple[Network, ...]:
    """Networks that are told as such or as texts; an address is a network of one. Raises `ValueError` for all else."""
    return tuple(ip_network(str(one)) for one in told)


def is_among(address: str, networks: Iterable[Network]) -> bool:
    """Whether a request comes from one of these networks; one without an address comes from nowhere."""
    found = parse(address)
    return found is not None and any(found in network for network in networks)


def parse(text: str) -> Address | None:
    """An address, with or without a port; one of IPv4 in the clothes of IPv6 is one of IPv4."""
    text = text.strip()
    with_port = _WITH_PORT.fullmatch(text)
    try:
        found = ip_address((with_port["v6"] or with_port["v4"]) if with_port else text)
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found

"""Whose calls a request counts as."""

from ipaddress import ip_network
from typing import Any

import pytest

from ergon_site.access.core import addresses
from ergon_site.access.core.addresses import MOST_PROXIES, UNKNOWN

TRUSTED = [ip_network(text) for text in ("10.0.0.0/8", "2001:db8::/32")]
PROXY, CALLER, OTHER = "10.0.0.1", "192.0.2.7", "198.51.100.9"


@pytest.mark.parametrize(
    ("connected", "forwarded", "counted"),
    [
        (CALLER, "", CALLER),
        (CALLER, OTHER, CALLER),
        (CALLER, PROXY, CALLER),
        (PROXY, "", PROXY),
        (PROXY, CALLER, CALLER),
        (PROXY, f" {CALLER} ", CALLER),
        (PROXY, f"{CALLER}:51234", CALLER),
        (PROXY, f"{OTHER}, {CALLER}", CALLER),
        (PROXY, f"{OTHER}, {CALLER}, 10.0.0.2", CALLER),
        (PROXY, "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        (PROXY, f"{OTHER}, nonsense", PROXY),
        (PROXY, f"{OTHER}, nonsense, 10.0.0.2", "10.0.0.2"),
        (PROXY, ",,,", PROXY),
        (PROXY, f"{'x' * 300_000}, {CALLER}", CALLER),
        (PROXY, ", ".join([CALLER] + ["10.0.0.2"] * (MOST_PROXIES + 1)), "10.0.0.2"),
        ("::ffff:10.0.0.1", f"::ffff:{CALLER}", CALLER),
        ("2001:db8::1", "[2001:db9:1:2:3::4]:443", "2001:db9:1:2::/64"),
        ("2001:db9:1:2:ffff::1", CALLER, "2001:db9:1:2::/64"),
        ("fe80::1%eth0", CALLER, "fe80::/64"),
        ("", CALLER, UNKNOWN),
        ("unix:", CALLER, UNKNOWN),
    ],
)
def test_a_forwarded_address_counts_only_from_a_trusted_proxy(connected: str, forwarded: str, counted: str) -> None:
    assert addresses.caller(connected, forwarded, TRUSTED) == counted


@pytest.mark.parametrize(
    ("address", "is_trusted"),
    [
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:10.2.0.1", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("", False),
        ("unix:", False),
        ("10.1.2.3, 10.1.2.4", False),
    ],
)
def test_only_addresses_of_the_networks_are_among_them(address: str, is_trusted: object) -> None:
    networks = [ip_network(text) for text in ("10.1.0.0/16", "192.0.2.7", "2001:db8::/32")]
    assert addresses.is_among(address, networks) is is_trusted


def test_networks_may_be_told_as_texts() -> None:
    assert addresses.networks_in([*TRUSTED, "10.0.0.1"]) == (*TRUSTED, ip_network("10.0.0.1/32"))


@pytest.mark.parametrize("told", ["proxy", "", "10.0.0.1/8", 5, True, None])
def test_anything_else_is_no_network(told: Any) -> None:
    with pytest.raises(ValueError, match=r"does not appear to be|has host bits set"):
        addresses.networks_in([told])

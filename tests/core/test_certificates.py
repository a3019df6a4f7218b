from ipaddress import ip_network

import pytest

from ergon_site.access.core import certificates
from ergon_site.access.core.certificates import UnusableIdentityError


@pytest.mark.parametrize("text", ["CN=press,O=Plant A", "CN=J\\C3\\BCrgen", "AB:CD:01", "x" * certificates.LONGEST])
def test_an_identity_is_kept_letter_by_letter(text: str) -> None:
    assert certificates.identity(f" {text}\t") == text


@pytest.mark.parametrize("text", ["", "  ", "x" * (certificates.LONGEST + 1), "CN=a\nb", "CN=a\x00", "CN=Jürgen"])
def test_what_no_proxy_tells_is_no_identity(text: str) -> None:
    with pytest.raises(UnusableIdentityError, match="1 to 500 printable ASCII characters"):
        certificates.identity(text)


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
    assert certificates.is_among(address, networks) is is_trusted

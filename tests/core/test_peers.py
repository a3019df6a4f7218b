"""Which addresses of peers are allowed, and how tokens are named."""

import pytest

from facts.core import peers
from facts.core.errors import ProvisioningError
from facts.core.peers import Peer, parse_peer


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("https://plant.example", Peer("https", "plant.example", 443)),
        ("http://Plant.Example/", Peer("http", "plant.example", 80)),
        ("https://plant.example:8443", Peer("https", "plant.example", 8443)),
        ("http://127.0.0.1:*", Peer("http", "127.0.0.1", None)),
        ("https://[::1]:8000", Peer("https", "[::1]", 8000)),
        ("https://*.plants.example", Peer("https", "*.plants.example", 443)),
    ],
)
def test_a_peer_is_a_scheme_a_host_and_a_port(text: str, peer: Peer) -> None:
    assert parse_peer(text) == peer


@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "plant.example", "ftp://plant.example", "https://*", "https://a.*.example", "https://plant example"),
        *(
            "https://user@plant.example",
            "https://plant.example:0",
            "https://plant.example:65536",
            "https://a.example/b",
        ),
    ],
)
def test_anything_else_is_no_peer(text: str) -> None:
    with pytest.raises(ValueError, match="must be addresses such as"):
        parse_peer(text)


@pytest.mark.parametrize(
    ("entry", "address", "is_allowed"),
    [
        ("https://plant.example", "https://plant.example", True),
        ("https://plant.example", "https://PLANT.example:443/ergon/api/v1", True),
        ("https://plant.example", "http://plant.example", False),
        ("https://plant.example", "https://plant.example:8443", False),
        ("https://plant.example", "https://a.plant.example", False),
        ("https://*.plant.example", "https://a.plant.example", True),
        ("https://*.plant.example", "https://a.b.plant.example", True),
        ("https://*.plant.example", "https://plant.example", False),
        ("https://*.plant.example", "https://evilplant.example", False),
        ("http://[::1]:*", "http://[::1]:9000", True),
    ],
)
def test_an_address_is_allowed_by_its_scheme_host_and_port(entry: str, address: str, is_allowed: object) -> None:
    if is_allowed:
        peers.check_address(address, [parse_peer("https://other.example"), parse_peer(entry)])
        return
    with pytest.raises(ProvisioningError, match="is not an allowed peer"):
        peers.check_address(address, [parse_peer(entry)])


@pytest.mark.parametrize("address", ["", "plant.example", "https://", "https://a@b", "https://a?b", "https://a:99999"])
def test_what_two_parsers_could_read_in_two_ways_is_no_address(address: str) -> None:
    with pytest.raises(ProvisioningError, match="looks like"):
        peers.check_address(address, [parse_peer("https://a")])


def test_a_token_is_named_by_a_file_of_the_folder() -> None:
    for name in ("plant", "plant-a.token", "_1", "A" * 100):
        peers.check_token_name(name)
    for name in ("", ".", "..", ".hidden", "a/b", "/a", "a\0", "a b", "a\n", "ä", "A" * 101):
        with pytest.raises(ProvisioningError):
            peers.check_token_name(name)
    assert [peers.token_name(stored) for stored in ("plant", "/srv/plant", "a/../b", "/srv/")] == ["plant"] * 2 + [
        "b",
        "",
    ]


def test_a_bearer_token_has_no_blanks_and_no_controls() -> None:
    assert peers.is_token("ergon_a_b-c.d~e+f/g==")
    for text in ("", "a b", "a\nb", "a\n", "ä", "=", "a=b", "x" * 5000):
        assert not peers.is_token(text)

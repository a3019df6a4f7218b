"""Peers to pull facts from: which addresses are allowed, how a token is named, and what a token looks like.

An address is matched as a whole, and anything that is not plainly an address is refused. Two parsers could read an
unusual one in two ways, and the token would go to another host than the one that was checked.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from facts.core.errors import ProvisioningError

PORTS = {"http": 80, "https": 443}
HIGHEST_PORT = 65_535
LONGEST_ADDRESS = 500
LONGEST_TOKEN = 4096
ANY_PORT = "*"
_NAMED = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_NUMBERED = r"\[[0-9A-Fa-f:.]+\]"
_ADDRESS = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{_NAMED}|{_NUMBERED})(?::(?P<port>[0-9]{{1,5}}))?(?:/[A-Za-z0-9/._~%-]*)?"
)
_ENTRY = re.compile(rf"(?P<scheme>https?)://(?P<host>(?:\*\.)?{_NAMED}|{_NUMBERED})(?::(?P<port>[0-9]{{1,5}}|\*))?/?")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
# What RFC 6750 calls a b64token: nothing else can be sent as a bearer token.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True, slots=True)
class Peer:
    """An entry of ERGON_PEERS. The host `*.example.org` is every host below example.org; no port is any port."""

    scheme: str
    host: str
    port: int | None

    def covers(self, other: "Peer") -> bool:
        if self.scheme != other.scheme or self.port not in {None, other.port}:
            return False
        if self.host.startswith("*."):
            return other.host.endswith(self.host[1:])
        return other.host == self.host


def parse_peer(text: str) -> Peer:
    """An entry of ERGON_PEERS; raises `ValueError` for anything else."""
    found = _ENTRY.fullmatch(text)
    peer = _peer(found) if found else None
    if peer is None:
        # Without the text, which may hold a password.
        msg = "must be addresses such as https://plant.example or https://*.plants.example:8443, without user and path"
        raise ValueError(msg)
    return peer


def check_address(address: str, allowed: Iterable[Peer]) -> None:
    """Refuse an address that is not one of the allowed peers."""
    found = _ADDRESS.fullmatch(address) if len(address) <= LONGEST_ADDRESS else None
    peer = _peer(found) if found else None
    if peer is None:
        msg = "a peer's address looks like https://plant.example:8443/path, without a user, a query or a fragment"
        raise ProvisioningError(msg, "/source_url")
    if not any(one.covers(peer) for one in allowed):
        origin = f"{peer.scheme}://{peer.host}:{peer.port}"
        msg = f"{origin} is not an allowed peer: an administrator of this deployment adds it to ERGON_PEERS"
        raise ProvisioningError(msg, "/source_url")


def check_token_name(name: str) -> None:
    """Refuse a name that could lead out of the folder of tokens."""
    if not _NAME.fullmatch(name):
        msg = (
            "a token is named by its file in ERGON_PEER_TOKENS: up to 100 letters, digits, dots, hyphens and"
            " underscores, and no dot first"
        )
        raise ProvisioningError(msg, "/source_token")


def token_name(stored: str) -> str:
    """The name of a token as a boundary's row has it. Rows of earlier releases hold a path: its last part counts."""
    return stored.rpartition("/")[2]


def is_token(text: str) -> bool:
    """Whether it can be sent as a bearer token."""
    return len(text) <= LONGEST_TOKEN and _TOKEN.fullmatch(text) is not None


def _peer(found: re.Match[str]) -> Peer | None:
    scheme, host = found["scheme"], found["host"].lower()
    if found["port"] == ANY_PORT:
        return Peer(scheme, host, None)
    port = int(found["port"]) if found["port"] else PORTS[scheme]
    return Peer(scheme, host, port) if 0 < port <= HIGHEST_PORT else None

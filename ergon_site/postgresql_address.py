"""Parses a PostgreSQL address: one host or several, options of libpq, and what it says about a pooler."""

import re
from typing import Any
from urllib.parse import parse_qsl, unquote

from psycopg.pq import Conninfo

from ergon_site.access.database import pooler
from ergon_site.environment import flag, require

SCHEMES = ("postgresql", "postgres", "psql", "pgsql")
# A link that goes down silently is noticed after 25 s, idle or not: before a worker's leases of 30 s lapse, and after
# the few seconds that a switch or a firewall needs to fail over. Of all this only the name is sent to the server,
# and poolers take it.
DEFAULTS: dict[str, Any] = {
    "fallback_application_name": "ergon",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
CHOICES = {
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "load_balance_hosts": ("disable", "random"),
    "pooler": (pooler.TRANSACTION, pooler.SESSION),
}
# What libpq also takes as an option, and Django as a setting.
SETTINGS = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
_HOST = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^:\[\]]*))(?::(?P<port>\d*))?")
_LAST_PORT = 65535


class AddressError(ValueError):
    """The address has another form than it must have."""


def parse(url: str) -> dict[str, Any]:
    """Django's settings for the database at an address; a ValueError never repeats what may be a password."""
    rest = url.partition("://")[2]
    place, _, query = rest.partition("?")
    authority, _, name = place.partition("/")
    if "@" in rest[len(authority) :]:
        raise AddressError  # a character of the password, such as "/" or "?", has ended the authority
    credentials, _, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    folder, _, name = name.rpartition("/")  # postgresql:////folder/of/the/socket/name
    host, port = _hosts(hosts) if hosts else (folder, "")
    settings = {"NAME": name, "USER": user, "PASSWORD": password, "HOST": host, "PORT": port}
    settings = {key: unquote(value) for key, value in settings.items()}
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        raise AddressError from None
    settings |= {SETTINGS[option]: options.pop(option) for option in SETTINGS if option in options}
    if not settings["NAME"]:
        raise AddressError
    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | CHOICES.keys() | {"prepared"}
    for option, value in options.items():
        require(option in known, f"has the option {option!r}, which PostgreSQL's client library does not know")
        is_number = value.isascii() and value.isdecimal()
        require(option not in DEFAULTS or is_number, f"must have a whole number as {option}, not {value!r}")
        choices = CHOICES.get(option, (value,))
        require(value in choices, f"must have one of {', '.join(choices)} as {option}, not {value!r}")
    pooling = _pooling(options)
    given = {name: int(value) if name in DEFAULTS else value for name, value in options.items()}
    # Of several hosts one is the primary, and nothing here works without writing.
    several = {"target_session_attrs": "read-write"} if "," in settings["HOST"] else {}
    return {**settings, **pooling, "OPTIONS": {**DEFAULTS, **several, **given}}


def _hosts(text: str) -> tuple[str, str]:
    """Hosts and ports as libpq takes them: two lists with commas, in which a missing port is empty."""
    hosts, ports = [], []
    for one in map(_HOST.fullmatch, text.split(",")):
        if one is None or not (host := one["v6"] or one["name"]):
            raise AddressError
        if one["port"] and not 0 < int(one["port"]) <= _LAST_PORT:
            raise AddressError
        hosts.append(host)
        ports.append(one["port"] or "")
    return ",".join(hosts), ",".join(ports) if any(ports) else ""


def _pooling(options: dict[str, str]) -> dict[str, Any]:
    """The pooler options of an address, taken out of those that are for libpq."""
    kind, prepared = options.pop("pooler", None), options.pop("prepared", None)
    is_shared = kind == pooler.TRANSACTION
    require(prepared is None or is_shared, "may have the option prepared only together with pooler=transaction")
    behind = "must not have the option options behind a pooler: use ALTER ROLE … SET instead"
    require(not is_shared or "options" not in options, behind)
    try:
        return pooler.declared(kind, is_prepared=flag(prepared or "0"))
    except ValueError as error:
        msg = f"has the option prepared, which {error}"
        raise ValueError(msg) from None

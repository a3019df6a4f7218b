"""Parses environment variables, or raises a `ValueError` that says what was expected."""

import json
import math
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from engines.executors.settings import ExecutorConfigurationError, executors_in
from ergon_site.access.core.addresses import Network, networks_in
from facts.core.peers import Peer, parse_peer

BROKERS = frozenset({"amqp", "amqps", "redis", "rediss"})
SHORTEST_SECRET_KEY = 50
HIGHEST_PORT = 65_535
SHORTEST_SESSION = 60
LONGEST_RELEASE = 100

Parser = Callable[[str], Any]
T = TypeVar("T")

_FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def require(is_right: object, expected: str) -> None:
    """Refuse a value that is not what it must be."""
    if not is_right:
        raise ValueError(expected)


text = str


def flag(value: str) -> bool:
    require(value.lower() in _FLAGS, f"must be 1 or 0, not {value!r}")
    return _FLAGS[value.lower()]


def seconds(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    require(0 < number < math.inf, f"must be a number of seconds above 0, not {value!r}")
    return number


def session_idle(value: str) -> int:
    """Whole seconds: a minute at least, so that a session outlives the login page."""
    number = whole(value)
    require(number >= SHORTEST_SESSION, f"must be at least {SHORTEST_SESSION} seconds, not {value!r}")
    return number


def duration(value: str) -> float:
    return 0.0 if value.strip("0.") == "" and "0" in value else seconds(value)


def _number(expected: str, most: float = math.inf) -> Callable[[str], int]:
    def parse(value: str) -> int:
        require(value.isdecimal() and 0 < int(value) <= most, f"must be {expected}, not {value!r}")
        return int(value)

    return parse


size = _number("a number of bytes above 0")
whole = _number("a whole number above 0")
port = _number(f"a port from 1 to {HIGHEST_PORT}", HIGHEST_PORT)


def optional(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """Nothing given is None."""
    return lambda value: parse(value) if value else None


def names(value: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in value.split(",") if name.strip())


def _names_of(what: str, is_right: Callable[[str], object]) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        told = names(value)
        for name in told:
            require(is_right(name), f"must be names of {what}, separated by commas, not {name!r}")
        return told

    return parse


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


# Whether the modules are there is seen where they are needed.
modules = _names_of("modules such as shop.tasks", _is_dotted)
variables = _names_of("variables such as BANK_URL or BANK_*", re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?").fullmatch)


def factories(value: str) -> dict[str, str]:
    """The factory of each service."""
    told = json_object(value)
    for name, path in told.items():
        module, _, factory = str(path).replace(":", ".", 1).rpartition(".")
        is_right = isinstance(path, str) and _is_dotted(module) and _is_dotted(factory)
        require(is_right, f"must name a factory such as shop.mail:connect for {name!r}, not {path!r}")
    return told


def header(value: str) -> str:
    """The name of a header, or nothing. One with an underscore never arrives: servers take it for a hyphen."""
    is_right = not value or re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", value)
    require(is_right, f"must be the name of a header, such as ErgonCertificate, not {value!r}")
    return value


def networks(value: str) -> tuple[Network, ...]:
    try:
        return networks_in(names(value))
    except ValueError as error:
        msg = f"must be addresses and networks such as 10.0.0.5,10.1.0.0/16: {error}"
        raise ValueError(msg) from None


def peers(value: str) -> tuple[Peer, ...]:
    return tuple(parse_peer(name) for name in names(value))


def executors(value: str) -> dict[str, Any]:
    told = json_object(value)
    try:
        executors_in(told)
    except ExecutorConfigurationError as error:
        msg = f"cannot be used: {str(error).removeprefix('ERGON_EXECUTORS: ')}"
        raise ValueError(msg) from None
    return told


def json_object(value: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        msg = f"must be a JSON object: {error}"
        raise ValueError(msg) from None
    require(isinstance(parsed, dict), f"must be a JSON object, not {type(parsed).__name__}")
    return dict(parsed)


def artifact_storage(folder: Path) -> Parser:
    """Options of an S3 storage; nothing means the folder."""

    def parse(value: str) -> dict[str, Any]:
        if not value:
            modes = {"file_permissions_mode": 0o600, "directory_permissions_mode": 0o700}
            return {"BACKEND": "django.core.files.storage.FileSystemStorage", "OPTIONS": {"location": folder, **modes}}
        options = json_object(value)
        require(options.get("bucket_name"), 'must name a bucket, such as {"bucket_name": "artifacts"}')
        missing = "is set, but django-storages is missing: install ergon[s3], or requirements/s3.txt of a clone"
        require(find_spec("storages") and find_spec("boto3"), missing)
        kept = {"file_overwrite": False, "gzip": False}
        return {"BACKEND": "facts.artifacts.s3.ArtifactStorage", "OPTIONS": {**options, **kept}}

    return parse


def path(value: str) -> Path:
    """A place that is only read, such as a mounted secret; whether it is there is seen when it is used."""
    return Path(value).expanduser().absolute()


def folder(value: str) -> Path:
    path = Path(value).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"names a folder that cannot be made: {path}: {error.strerror}"
        raise ValueError(msg) from None
    require(os.access(path, os.W_OK | os.X_OK), f"names a folder that cannot be written to: {path}")
    return path


def secret_key(value: str) -> str:
    require(len(value) >= SHORTEST_SECRET_KEY, f"must have at least {SHORTEST_SECRET_KEY} characters")
    return value


def broker(value: str) -> str:
    """The address of a broker, or several separated by semicolons, of which the first that answers is used."""
    for address in value.split(";"):
        scheme, mark, rest = address.partition("://")
        require(mark and scheme in BROKERS, "must start with amqp://, amqps://, redis:// or rediss://")
        try:
            is_usable = urlsplit(f"//{rest}").port != 0
        except ValueError:
            is_usable = False
        # Without the address, which may hold a password.
        form = f"{scheme}://user:password@host:5672/name; a port is a number up to {HIGHEST_PORT}"
        require(is_usable, f"must look like {form}")
    return value


def trace_url(value: str) -> str:
    """The address of traces, with a placeholder for the id, or nothing."""
    is_right = not value or (urlsplit(value).scheme in {"http", "https"} and "{trace_id}" in value)
    require(is_right, f"must look like https://host/trace/{{trace_id}}, not {value!r}")
    return value


def release(value: str) -> str:
    """The name of a release of the code that workers run."""
    require(
        len(value) <= LONGEST_RELEASE and value.isprintable(), f"must be up to {LONGEST_RELEASE} printable characters"
    )
    return value


def rate(value: str) -> float:
    """`1000/s`, `600/m`, `5000/h` as requests per second."""
    periods = {"s": 1, "m": 60, "h": 3600}
    count, _, period = value.partition("/")
    is_right = count.isdecimal() and int(count) > 0 and period in periods
    require(is_right, f"must look like 1000/s, 600/m or 5000/h, not {value!r}")
    return int(count) / periods[period]

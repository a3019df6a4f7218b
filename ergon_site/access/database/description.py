"""Describes the database of a connection to people: its kind, and its file or host, without user and password."""

from typing import Any


def describe(connection: Any) -> str:
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"SQLite {given['NAME']}"
    hosts, ports = str(given["HOST"] or "localhost").split(","), str(given["PORT"] or "5432").split(",")
    ports += ports[-1:] * (len(hosts) - len(ports))
    places = ", ".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=False))
    return f"{connection.display_name} {given['NAME']} at {places}"

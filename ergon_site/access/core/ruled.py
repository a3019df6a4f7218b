"""Values whose fields carry their rules, and the ways through them: what the forms of policies are made from."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from typing import Any, ClassVar, Protocol, Self

from ergon_site.access.core.durations import exact_span

SECONDS = "seconds"


class Ruled(Protocol):
    """The content of a policy version: a frozen dataclass, JSON in and out.

    The metadata of each field are its `bound` in words, the `check` of a value, whether it is `optional`, its `meaning`
    and its `unit`; a part, made of fields itself, names its class as `kind`, and a field without effect `is_reserved`.
    What breaks a rule is refused with a ValueError whose message begins with the name of the class and the way to the
    field.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @classmethod
    def from_dict(cls, values: Any) -> Self: ...

    def to_dict(self) -> dict[str, Any]: ...

    @classmethod
    def from_stored(cls, values: Any) -> Self: ...

    def to_stored(self) -> dict[str, Any]: ...


def parts(kind: type[Ruled]) -> Iterator[str]:
    """The fields of a value that are made of fields themselves."""
    return (one.name for one in fields(kind) if "kind" in one.metadata)


def leaves(kind: type[Ruled], path: str = "") -> Iterator[tuple[str, "Field[Any]"]]:
    """Every field of a value that is no part, with the way to it."""
    for one in fields(kind):
        if "kind" in one.metadata:
            yield from leaves(one.metadata["kind"], f"{path}{one.name}.")
        else:
            yield f"{path}{one.name}", one


def rule(kind: type[Ruled], path: str) -> Mapping[str, Any]:
    """The rule of the field at the end of a way."""
    name, _, rest = path.partition(".")
    found = next(one.metadata for one in fields(kind) if one.name == name)
    return rule(found["kind"], rest) if rest else found


def at(body: Mapping[str, Any], path: str) -> Any:
    found: Any = body
    for name in path.split("."):
        found = found[name]
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by their ways, as one body."""
    body: dict[str, Any] = {}
    for path, value in values.items():
        *way, name = path.split(".")
        inner = body
        for step in way:
            inner = inner.setdefault(step, {})
        inner[name] = value
    return body


def words(kind: type[Ruled], path: str, value: Any) -> str:
    """A value as people read it: with its unit, and "none" where there is none. JSON where no field has that path."""
    found = dict(leaves(kind)).get(path)
    unit = found.metadata["unit"] if found else ""
    match value:
        case None:
            return "none"
        case bool():
            return "on" if value else "off"
        case int() | float() if unit == SECONDS:
            return exact_span(value)
        case int() | float() if unit:
            return f"{value:,g} {unit.removesuffix('s') if value == 1 else unit}"
        case int() | float():
            return f"{value:,}"
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)

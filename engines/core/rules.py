"""Policies as dataclasses: each field has a rule, a meaning and a unit, and they convert from and to JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, NoReturn, Self

from engines.core import backoff as waits
from engines.core.errors import PolicyError


class Complete(type):
    """Makes policies that are whole: an object that one is given is copied, so that nobody changes it from outside."""

    def __call__(cls, *args: Any, **values: Any) -> Any:
        return super().__call__(*args, **{name: _copied(value) for name, value in values.items()})


class Policy(metaclass=Complete):
    """The base class of policies."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            value, bounds = getattr(self, one.name), one.metadata
            if not (value is None and bounds["optional"]) and not bounds["check"](value):
                self.refuse(one.name, f"must be {bounds['bound']}, not {value!r}")
            if bounds.get("is_whole") and value is not None and value > LARGEST:
                self.refuse(one.name, f"must be at most {LARGEST:,}")
        self.check()

    def check(self) -> None:
        """Bounds between fields."""

    @classmethod
    def refuse(cls, name: str, problem: str) -> NoReturn:
        msg = f"{cls.__name__}.{name} {problem}"
        raise PolicyError(msg, (name,))

    def to_dict(self) -> dict[str, Any]:
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {
            name: value.to_dict() if isinstance(value, Policy) else _copied(value) for name, value in values.items()
        }

    def to_stored(self) -> dict[str, Any]:
        """The fields as a version keeps them: without those that are not set, which an older release may not know."""
        values = {one: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {
            one.name: value.to_stored() if isinstance(value, Policy) else _copied(value)
            for one, value in values.items()
            if not _is_unset(one, value)
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            msg = f"{cls.__name__} is not JSON: {error}"
            raise PolicyError(msg) from None
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The policy with these fields and the defaults of the others; unknown names are refused."""
        if not isinstance(values, Mapping):
            msg = f"{cls.__name__} must be an object, not {values!r}"
            raise PolicyError(msg)
        known = {one.name: one.metadata.get("kind") for one in fields(cls)}  # type: ignore[arg-type]
        for name in values:
            if name not in known:
                cls.refuse(str(name), f"is unknown; there are: {', '.join(known)}")
        return cls(**{name: cls._read(name, known[name], value) for name, value in values.items()})

    @classmethod
    def from_stored(cls, values: Any) -> Self:
        """The policy of a version, maybe one of another release: fields that are not known here are ignored."""
        return cls.from_dict(_known(cls, values))

    @classmethod
    def _read(cls, name: str, kind: type["Policy"] | None, value: Any) -> Any:
        if kind is None:
            return value
        try:
            return kind.from_dict(value)
        except PolicyError as error:
            # The whole way to the field: steps.process.retry.max_attempts.
            msg = f"{cls.__name__}.{name}{str(error).removeprefix(kind.__name__)}"
            raise PolicyError(msg, (name, *error.path)) from None


def _known(kind: type[Policy] | None, values: Any) -> Any:
    """The values without the names that the policy does not have."""
    if kind is None or not isinstance(values, Mapping):
        return values
    known = {one.name: one.metadata for one in fields(kind)}  # type: ignore[arg-type]
    return {name: _within(known[name], value) for name, value in values.items() if name in known}


def _within(bounds: Mapping[str, Any], value: Any) -> Any:
    """A stored value; one that an older release took, and that is too much now, is as much as may be."""
    most = bounds.get("most")
    is_too_much = most is not None and waits.is_duration(value) and value > most
    return most if is_too_much else _known(bounds.get("kind"), value)


def _is_unset(one: Field[Any], value: Any) -> bool:
    if one.metadata.get("is_later"):
        return bool(value == (one.default if one.default_factory is MISSING else one.default_factory()))
    return value is None and one.default is None


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(one) for name, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def rule(bound: str, check: Callable[[Any], bool], *, optional: bool = False) -> dict[str, Any]:
    """The rule of a field: a check, and its text for people."""
    return {"bound": f"{bound} or null" if optional else bound, "check": check, "optional": optional}


def part(kind: type[Policy], meaning: str) -> dict[str, Any]:
    """A policy within a policy."""
    is_one = rule(f"a {kind.__name__}", lambda value: isinstance(value, kind))
    return {**is_one, "kind": kind, **means(meaning)}


def nested(kind: type[Policy], meaning: str) -> Any:
    """The field of a policy within a policy, by default one with defaults only."""
    return field(default_factory=kind, metadata=part(kind, meaning))


def means(meaning: str, unit: str = "") -> dict[str, Any]:
    """The meaning and the unit of a field, as pages show them."""
    return {"meaning": meaning, "unit": unit}


def reserved(unit: str) -> dict[str, Any]:
    """The meaning of a field of the documents that has no effect yet: it is kept, and forms leave it out."""
    return {**means("Reserved: validated, not used yet.", unit), "is_reserved": True}


# What every database, protocol and library takes for a number.
LARGEST = 2**31 - 1
# Of a field that older releases do not know: it is left out of what is stored, unless it says something else.
LATER = {"is_later": True}
IS_WHOLE = {"is_whole": True}
WHOLE = rule("a whole number of at least 1", lambda value: type(value) is int and value >= 1) | IS_WHOLE
WHOLE_OR_NONE = rule("a whole number of at least 1", WHOLE["check"], optional=True) | IS_WHOLE
DURATION = rule("a number of seconds of at least 0", waits.is_duration)
DURATION_OR_NONE = rule("a number of seconds of at least 0", waits.is_duration, optional=True)
TIME_LIMIT = rule("a number of seconds above 0", lambda value: waits.is_duration(value) and value > 0, optional=True)
FACTOR = rule("a number of at least 1", lambda value: waits.is_duration(value) and value >= 1)
FLAG = rule("true or false", lambda value: type(value) is bool)
OBJECT = rule("an object", lambda value: isinstance(value, Mapping))
NAME = rule("a name", lambda value: isinstance(value, str) and value != "", optional=True)

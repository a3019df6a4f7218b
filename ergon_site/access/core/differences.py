"""Differences between two JSON values, as a list for people and machines."""

from collections.abc import Iterator
from typing import Any

_MISSING = object()


def changes(before: Any, after: Any) -> list[dict[str, Any]]:
    """An entry for each place that differs: its path, and the value before and after (absent if there was none)."""
    return [
        {"path": path} | {side: value for side, value in (("before", old), ("after", new)) if value is not _MISSING}
        for path, old, new in _walk("", before, after)
    ]


def _walk(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(name for name in after if name not in before)]:
            inner = f"{path}.{name}" if path else str(name)
            yield from _walk(inner, before.get(name, _MISSING), after.get(name, _MISSING))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _walk(f"{path}[{index}]", old, new)
    elif type(before) is not type(after) or before != after:
        yield path, before, after

"""JSON as people read it: a tree of folds, everything escaped, however large or deep it is."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

MOST_NODES = 3_000
MOST_CHILDREN = 200
DEEPEST = 30
OPEN_TO = 2
LONGEST_TEXT = 400
LONGEST_DOCUMENT = 200_000


@dataclass
class _Allowance:
    nodes: int = MOST_NODES


def tree(value: Any) -> SafeString:
    """The value as nested lists that fold; what is too much for one page is counted instead."""
    parts = _node("", value, 0, _Allowance())
    return mark_safe(f'<ul class="ergon-tree">{"".join(parts)}</ul>')  # noqa: S308 (each part escapes what it shows)


def text(value: Any) -> str:
    """The value as indented JSON, cut where a page would choke on it."""
    try:
        whole = json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply to display"
    if len(whole) <= LONGEST_DOCUMENT:
        return whole
    return f"{whole[:LONGEST_DOCUMENT]}\n… cut here; the whole has {len(whole):,} characters"


def _node(label: str, value: Any, depth: int, left: _Allowance) -> Iterator[str]:
    left.nodes -= 1
    match value:
        case dict() if value:
            yield from _branch(label, list(value.items()), "{}", depth, left)
        case list() if value:
            yield from _branch(label, [(str(place), item) for place, item in enumerate(value)], "[]", depth, left)
        case _:
            yield f"<li>{_label(label)}{_leaf(value)}</li>"


def _branch(label: str, children: list[tuple[str, Any]], brackets: str, depth: int, left: _Allowance) -> Iterator[str]:
    is_open = " open" if depth < OPEN_TO and len(children) <= MOST_CHILDREN else ""
    size = f'<span class="ergon-tree-size">{brackets[0]}{len(children):,}{brackets[1]}</span>'
    yield f"<li><details{is_open}><summary>{_label(label)}{size}</summary><ul>"
    if depth >= DEEPEST:
        yield "<li>nested too deeply to display</li>"
    else:
        yield from _children(children, depth, left)
    yield "</ul></details></li>"


def _children(children: list[tuple[str, Any]], depth: int, left: _Allowance) -> Iterator[str]:
    for number, (label, child) in enumerate(children):
        if number >= MOST_CHILDREN or left.nodes <= 0:
            yield f"<li>… and {len(children) - number:,} more</li>"
            return
        yield from _node(label, child, depth + 1, left)


def _label(label: str) -> str:
    return f'<span class="ergon-tree-key">{escape(label)}</span> ' if label else ""


def _leaf(value: Any) -> str:
    told = json.dumps(value, ensure_ascii=False)
    kind = "text" if isinstance(value, str) else "value"
    if len(told) <= LONGEST_TEXT:
        return f'<span class="ergon-tree-{kind}">{escape(told)}</span>'
    head = f'<span class="ergon-tree-{kind}">{escape(told[:80])}… ({len(told):,} characters)</span>'
    return f'<details class="ergon-tree-long"><summary>{head}</summary>{escape(told[:LONGEST_DOCUMENT])}</details>'

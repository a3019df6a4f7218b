"""JSON as people read it: a tree of folds, everything escaped, however large or deep it is."""

import json
from collections.abc import Iterator
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

MOST_NODES = 3_000
MOST_CHILDREN = 200
DEEPEST = 30
OPEN_TO = 2
LONGEST_TEXT = 400
LONGEST_DOCUMENT = 200_000


def tree(value: Any) -> SafeString:
    """The value as nested lists that fold; what is too much for one page is counted instead."""
    left = MOST_NODES

    def node(label: str, value: Any, depth: int) -> Iterator[str]:
        nonlocal left
        left -= 1
        key = f'<span class="ergon-tree-key">{escape(label)}</span> ' if label else ""
        if not isinstance(value, dict | list) or not value:
            yield f"<li>{key}{_leaf(value)}</li>"
            return
        pairs = value.items() if isinstance(value, dict) else ((str(place), item) for place, item in enumerate(value))
        size = f"{{{len(value):,}}}" if isinstance(value, dict) else f"[{len(value):,}]"
        is_open = " open" if depth < OPEN_TO and len(value) <= MOST_CHILDREN else ""
        yield f'<li><details{is_open}><summary>{key}<span class="ergon-tree-size">{size}</span></summary><ul>'
        for number, (name, child) in enumerate(pairs):
            if depth >= DEEPEST:
                yield "<li>nested too deeply to display</li>"
                break
            if number >= MOST_CHILDREN or left <= 0:
                yield f"<li>… and {len(value) - number:,} more</li>"
                break
            yield from node(name, child, depth + 1)
        yield "</ul></details></li>"

    return mark_safe(f'<ul class="ergon-tree">{"".join(node("", value, 0))}</ul>')  # noqa: S308 (each part escapes what it shows)


def _leaf(value: Any) -> str:
    told = json.dumps(value, ensure_ascii=False)
    kind = "text" if isinstance(value, str) else "value"
    if len(told) <= LONGEST_TEXT:
        return f'<span class="ergon-tree-{kind}">{escape(told)}</span>'
    head = f'<span class="ergon-tree-{kind}">{escape(told[:80])}… ({len(told):,} characters)</span>'
    return f'<details class="ergon-tree-long"><summary>{head}</summary>{escape(told[:LONGEST_DOCUMENT])}</details>'


def text(value: Any) -> str:
    """The value as indented JSON, cut where a page would choke on it."""
    try:
        whole = json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply to display"
    if len(whole) <= LONGEST_DOCUMENT:
        return whole
    return f"{whole[:LONGEST_DOCUMENT]}\n… cut here; the whole has {len(whole):,} characters"

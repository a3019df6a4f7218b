"""The rows of a long list as HTML, in the theme's classes: its own way of writing them costs more than finding them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.utils import label_for_field
from django.urls import reverse
from django.utils.html import conditional_escape, escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from unfold.templatetags.unfold_list import LINK_CLASSES, ROW_CLASSES

BODY = "block relative lg:table-row-group"
SHADED = f"{BODY} bg-base-50 dark:bg-white/[.02]"
ROW = (
    "data-row block border border-base-200 mb-3 relative rounded-default lg:table-row lg:border-none lg:mb-0 "
    "lg:rounded-none dark:border-base-800"
)
CELL, LINK = " ".join(ROW_CLASSES), " ".join(LINK_CLASSES)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, where a row's value comes from, and whether it links to the row's page."""

    label: str
    value: Callable[[Any], Any]
    is_link: bool


def columns(cl: Any) -> list[Column]:
    links = cl.list_display_links or cl.list_display[:1]
    return [_column(cl, name, is_link=name in links) for name in cl.list_display]


def body(cl: Any) -> SafeString:
    """The rows of the page that a list shows."""
    shown, folder = columns(cl), reverse(f"admin:{cl.opts.app_label}_{cl.opts.model_name}_changelist")
    rows = ("".join(_cells(row, shown, f"{folder}{cl.model_admin.key_of(row)}")) for row in cl.result_list)
    bodies = (
        f'<tbody class="{SHADED if place % 2 else BODY}"><tr class="{ROW}">{row}</tr></tbody>'
        for place, row in enumerate(rows)
    )
    return mark_safe("".join(bodies))  # noqa: S308 (each cell escapes what it shows)


def _column(cl: Any, name: str, *, is_link: bool) -> Column:
    own = getattr(cl.model_admin, name, None)
    label = str(label_for_field(name, cl.model, model_admin=cl.model_admin))
    return Column(capfirst(label), own if callable(own) else lambda row: getattr(row, name), is_link)


def _cells(row: Any, shown: list[Column], address: str) -> Iterator[str]:
    for column in shown:
        text = _text(column.value(row))
        if column.is_link:
            text = f'<a href="{address}/change/" class="{LINK}">{text}</a>'
        kind = "th" if column.is_link else "td"
        yield f'<{kind} class="{CELL}" data-label="{escape(column.label)}">{text}</{kind}>'


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return f'<span class="ergon-when">{value:%Y-%m-%d %H:%M:%S}</span>'
    return "–" if value is None or value == "" else conditional_escape(value)

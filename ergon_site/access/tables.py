"""The rows of a long list as HTML, in the theme's classes: its own way of writing them costs more than finding them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
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
    shown = []
    for name in cl.list_display:
        own = getattr(cl.model_admin, name, None)
        label = capfirst(str(label_for_field(name, cl.model, model_admin=cl.model_admin)))
        shown.append(Column(label, own if callable(own) else attrgetter(name), name in links))
    return shown


def body(cl: Any) -> SafeString:
    """The rows of the page that a list shows."""
    shown, folder = columns(cl), reverse(f"admin:{cl.opts.app_label}_{cl.opts.model_name}_changelist")
    parts = []
    for place, row in enumerate(cl.result_list):
        parts.append(f'<tbody class="{SHADED if place % 2 else BODY}"><tr class="{ROW}">')
        address = f"{folder}{cl.model_admin.key_of(row)}/change/"
        for column in shown:
            value = column.value(row)
            if isinstance(value, datetime):
                text = f'<span class="ergon-when">{value:%Y-%m-%d %H:%M:%S}</span>'
            else:
                text = "–" if value is None or value == "" else conditional_escape(value)
            kind = "th" if column.is_link else "td"
            text = f'<a href="{address}" class="{LINK}">{text}</a>' if column.is_link else text
            parts.append(f'<{kind} class="{CELL}" data-label="{escape(column.label)}">{text}</{kind}>')
        parts.append("</tr></tbody>")
    return mark_safe("".join(parts))  # noqa: S308 (each cell escapes what it shows)

"""Buttons of the console's pages: one that a person may not press is shown all the same, disabled, with the reason."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from ergon_site.access.console.pages import holds
from ergon_site.access.core.roles import Right, reason_missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A button: its label, its address, whether it opens a dialog, and why it is disabled."""

    title: str
    address: str
    is_dialog: bool
    refusal: str


def button(request: HttpRequest, title: str, address: str, *, right: Right, is_dialog: bool = True) -> Button:
    refusal = "" if holds(request, right) else reason_missing(right)
    return Button(title=title, address=address, is_dialog=is_dialog, refusal=refusal)


def bar(*buttons: Button) -> dict[str, Any]:
    """A row of buttons, and each reason once, with the buttons that it holds for."""
    refused: dict[str, list[str]] = {}
    for one in buttons:
        if one.refusal:
            refused.setdefault(one.refusal, []).append(one.title)
    refusals = [
        f"{', '.join(dict.fromkeys(titles))}: {reason[0].lower()}{reason[1:]}" for reason, titles in refused.items()
    ]
    return {"buttons": buttons, "refusals": refusals}

"""Form fields that the pages of the engines share."""

import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.db.models import Model
from django.utils.html import format_html, format_html_join
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

from engines.core import naming
from ergon_site.access.core import json_text
from ergon_site.access.detail import sentence


class WhyField(forms.CharField):
    """The reason of a change."""

    def __init__(self) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 2})
        super().__init__(label="Reason", max_length=500, widget=widget, help_text="Kept in the audit log.")


class NameField(forms.CharField):
    """The name of something new."""

    def __init__(self, noun: str, model: type[Model]) -> None:
        self.noun, self.model = noun, model
        widget = UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
        super().__init__(max_length=100, widget=widget, help_text="Letters, digits, '.', '_' and '-'.")

    def clean(self, value: Any) -> str:
        name: str = super().clean(value)
        if refusal := naming.refusal(self.noun, name):
            raise forms.ValidationError(sentence(refusal))
        if self.model._default_manager.filter(name=name).exists():  # noqa: SLF001 (Django's own way)
            msg = f"There is a {self.noun} named {name} already."
            raise forms.ValidationError(msg)
        return name


class Suggestions(UnfoldAdminTextInputWidget):
    """A text, with the names that are known offered."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self.names = names
        super().__init__(attrs={"autocomplete": "off"})

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> str:
        key = f"{name}_names"
        box = super().render(name, value, {**(attrs or {}), "list": key}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((known,) for known in self.names()))
        return format_html('{}<datalist id="{}">{}</datalist>', box, key, options)


class JsonField(forms.CharField):
    """A JSON value, typed in."""

    def __init__(self, *, rows: int = 12, **options: Any) -> None:
        attrs = {"rows": rows, "data-json": True, "spellcheck": "false", "autocomplete": "off"}
        super().__init__(widget=UnfoldAdminTextareaWidget(attrs=attrs), strip=False, **options)

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

    def clean(self, value: Any) -> Any:
        return json_value(super().clean(value))


def json_value(text: str) -> Any:
    """The value of a JSON text, or a refusal that says where it is wrong."""
    try:
        return json_text.parse(text.encode())
    except json_text.MalformedJSONError as error:
        raise forms.ValidationError(str(error).replace("The body", "This")) from None

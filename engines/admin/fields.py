"""Form fields that the pages of the engines share."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.db.models import Model
from django.utils.html import format_html, format_html_join
from unfold.widgets import UnfoldAdminTextInputWidget

from engines.core import naming
from ergon_site.access.detail import sentence


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

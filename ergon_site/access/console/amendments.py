"""Forms that change a row while others may change it, too."""

import json
from collections.abc import Mapping
from copy import copy
from typing import Any

from django import forms
from django.core.serializers.json import DjangoJSONEncoder

from ergon_site.access.core import json_text


class AmendingForm(forms.BaseForm):
    """Gives what its reader has changed since it was opened; what others have changed meanwhile stays.

    `present` are the values of the row, by field. The form carries along those that it was opened with. What both have
    changed is told at the field, and is as the reader wants it once they save again.
    """

    def __init__(self, *args: Any, present: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*args, **options)
        self.present = present
        # Not one that may refuse what is sent: the form would not know then what it was opened with.
        self.fields["opened"] = forms.Field(required=False, widget=forms.HiddenInput, initial=_as_json(present))

    def changes(self) -> dict[str, Any]:
        """What the reader has changed, by field."""
        given = {name: self.cleaned_data[name] for name in self.present if name in self.cleaned_data}
        plain, opened = _plain(given), self.cleaned_data["opened"]
        return {name: value for name, value in given.items() if plain[name] != opened[name]}

    def amended(self) -> dict[str, Any]:
        """The values of the row with the reader's changes."""
        return {**self.present, **self.changes()}

    def clean_opened(self) -> dict[str, Any]:
        try:
            opened = json_text.parse((self.cleaned_data["opened"] or "").encode())
        except json_text.MalformedJSONError:
            opened = None
        is_whole = isinstance(opened, dict) and opened.keys() == self.present.keys()
        return opened if is_whole else _plain(self.present)

    def clean(self) -> dict[str, Any]:
        super().clean()
        self._refuse_contested()
        return self.cleaned_data

    def _refuse_contested(self) -> None:
        opened, present, changes = self.cleaned_data["opened"], _plain(self.present), _plain(self.changes())
        contested = [name for name in changes if present[name] not in (opened[name], changes[name])]
        for name in contested:
            opened[name], now = present[name], _words(present[name])
            self.add_error(name, f"Somebody has changed this meanwhile: it is {now} now. Save again to replace it.")
        if contested:
            sent: Any = copy(self.data)
            sent["opened"] = _as_json(opened)
            self.data = sent


def _as_json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, cls=DjangoJSONEncoder)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them."""
    plain: dict[str, Any] = json.loads(_as_json(values))
    return plain


def _words(value: Any) -> str:
    match value:
        case bool():
            return "on" if value else "off"
        case list():
            return ", ".join(map(str, value)) or "empty"
    return "empty" if value in (None, "") else str(value)

"""A form field for every kind of field that a policy has; the policy's own rule is what checks it."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from ergon_site.access.detail import sentence
from ergon_site.access.fields import json_value

LONGEST_NUMBER = 20
LONGEST_TEXT = 100
LONGEST_OBJECT = 10_000


def _number(text: str, kind: Callable[[str], Any]) -> Any:
    # One that is no number is handed on as it is, for the rule to refuse.
    try:
        return kind(text)
    except ValueError:
        return text


@dataclasses.dataclass(frozen=True, slots=True)
class Input:
    """The input of a value: how its text is parsed, its longest length, and the widget."""

    read: Callable[[str], Any]
    longest: int
    widget: Callable[[dict[str, Any]], forms.Widget] = UnfoldAdminTextInputWidget
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


WHOLE = Input(lambda text: _number(text, int), LONGEST_NUMBER, attrs={"inputmode": "numeric"})
DECIMAL = Input(lambda text: _number(text, float), LONGEST_NUMBER, attrs={"inputmode": "decimal"})
TEXT = Input(str, LONGEST_TEXT)
OBJECT = Input(
    json_value, LONGEST_OBJECT, UnfoldAdminTextareaWidget, {"rows": 3, "data-json": True, "spellcheck": "false"}
)
FLAG = Input(bool, LONGEST_TEXT, UnfoldBooleanSwitchWidget)
INPUTS: dict[Any, Input] = {
    int: WHOLE,
    int | None: WHOLE,
    float: DECIMAL,
    float | None: DECIMAL,
    str: TEXT,
    str | None: TEXT,
    bool: FLAG,
    Mapping[str, Any]: OBJECT,
}


class RuleField(forms.Field):
    """A field of a policy."""

    def __init__(self, one: "dataclasses.Field[Any]") -> None:
        self.rule, self.input = one.metadata, INPUTS[one.type]
        unit = {"suffix": self.rule["unit"]} if self.rule["unit"] else {}
        self.bound = self.rule["bound"].replace(" or null", ", or empty")
        super().__init__(
            required=False,
            label=one.name.replace("_", " ").capitalize(),
            help_text=self.rule["meaning"] if self.input is FLAG else f"{self.rule['meaning']} {sentence(self.bound)}",
            widget=self.input.widget({**self.input.attrs, **unit, "autocomplete": "off"}),
        )

    def prepare_value(self, value: Any) -> Any:
        match value:
            case bool() | str() | None:
                return value
            case float() if value.is_integer() and abs(value) < 10**LONGEST_NUMBER:
                return str(int(value))
            case dict():
                return json.dumps(value, indent=2, ensure_ascii=False)
        return str(value)

    def clean(self, value: Any) -> Any:
        read = self._read(value)
        if read is None and self.rule["optional"]:
            return None
        if not self.rule["check"](read):
            raise forms.ValidationError(sentence(f"must be {self.bound}"))
        return read

    def _read(self, value: Any) -> Any:
        text = value.strip() if isinstance(value, str) else value
        if text in ("", None):
            return None
        if isinstance(text, str) and len(text) > self.input.longest:
            msg = f"At most {self.input.longest} characters."
            raise forms.ValidationError(msg)
        return self.input.read(text)

"""The form of a policy: a field for every field of every part; the policy's own rules are what checks them."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from ergon_site.access.console.fields import WhyField, json_value
from ergon_site.access.core import ruled
from ergon_site.access.core.texts import sentence
from ergon_site.access.policies.models import PolicyRow

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
    def __init__(self, one: "dataclasses.Field[Any]") -> None:
        self.rule, self.input = one.metadata, INPUTS[one.type]
        self.bound = self.rule["bound"].replace(" or null", ", or empty")
        shown = {"suffix": self.rule["unit"]} if self.rule["unit"] else {}
        shown |= {"placeholder": "none"} if self.rule["optional"] else {}
        shown |= {} if self.input is FLAG else {"title": sentence(self.bound)}
        super().__init__(
            required=False,
            label=one.name.replace("_", " ").capitalize(),
            help_text=self.rule["meaning"],
            widget=self.input.widget({**self.input.attrs, **shown, "autocomplete": "off"}),
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
        read = value.strip() if isinstance(value, str) else value
        if isinstance(read, str) and len(read) > self.input.longest:
            msg = f"At most {self.input.longest} characters."
            raise forms.ValidationError(msg)
        read = None if read in ("", None) else self.input.read(read)
        if read is None and self.rule["optional"]:
            return None
        if not self.rule["check"](read):
            raise forms.ValidationError(sentence(f"must be {self.bound}"))
        return read


class PolicyForm(forms.Form):
    """The form of the next version. `expected` is the version that the form was opened with.

    A draft needs no reason yet. Fields that are reserved are no part of the form, and stay as they are.
    """

    expected = forms.IntegerField(widget=forms.HiddenInput)
    reason = WhyField()

    def __init__(
        self, policy: PolicyRow, data: Mapping[str, Any] | None = None, *, is_open: bool = True, is_draft: bool = False
    ) -> None:
        self.kind = policy.value_class
        self.before, self.defaults = policy.content(policy.active).to_dict(), self.kind().to_dict()
        super().__init__(data, initial={"expected": policy.active.number})
        for path, one in ruled.leaves(self.kind):
            self.initial[path] = ruled.at(self.before, path)
            if not one.metadata.get("is_reserved"):
                self.fields[path] = RuleField(one)
        for field in self.fields.values():
            field.disabled = not is_open
        self.fields["reason"].required = not is_draft

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                self.kind.from_dict(self.body())
            except ValueError as error:
                # At the field that the error names.
                place, _, problem = str(error).partition(" ")
                path = place.removeprefix(f"{self.kind.__name__}.")
                told = (path, sentence(problem)) if path in self.fields else (None, f"{path} {problem}.")
                self.add_error(*told)
        return self.cleaned_data

    def is_changed(self) -> bool:
        """Whether the form is valid and says something new; one that does not is wrong."""
        if self.is_valid() and self.body() == self.before:
            self.add_error(None, "There are no changes from the active version.")
        return self.is_valid()

    def body(self) -> dict[str, Any]:
        """The policy that the fields say, as JSON."""
        return ruled.nested({path: self._value(path) for path, _ in ruled.leaves(self.kind)})

    def values(self, path: str) -> dict[str, Any] | None:
        """The values of the fields below a path, if each can be parsed and the part takes them together.

        Of what is wrong with several parts, an error of the form tells the first.
        """
        names = [name for name in self.fields if name.startswith(f"{path}.")]
        if self.is_bound and any(name in self.errors for name in names):
            return None
        values = {name.removeprefix(f"{path}."): self._value(name) for name in names}
        try:
            ruled.rule(self.kind, path)["kind"].from_dict(values)
        except ValueError:
            return None
        return values

    def is_edited(self, path: str) -> bool:
        """Whether a field is wrong, or differs from the active version."""
        return self.is_bound and (path in self.errors or self._value(path) != self.initial[path])

    def is_default(self, path: str) -> bool:
        """Whether the active version has the default of a field."""
        return bool(self.initial[path] == ruled.at(self.defaults, path))

    def with_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What a browser would send of the form with other values in some fields."""
        sent = {name: self[name].value() for name in self.fields}
        sent |= {path: self.fields[path].prepare_value(value) for path, value in values.items() if path in self.fields}
        return {name: value for name, value in sent.items() if value not in (None, False)}

    def _value(self, path: str) -> Any:
        before = self.initial[path]
        value = self.cleaned_data[path] if self.is_bound and path in self.fields else before
        # 30 and 30.0 are no change.
        return before if type(value) in (int, float) and value == before else value

"""The form of a policy: every field of every part, made from what its versions say."""

from collections.abc import Mapping
from typing import Any

from django import forms

from ergon_site.access.core import ruled
from ergon_site.access.detail import sentence
from ergon_site.access.fields import WhyField
from ergon_site.access.policies.fields import RuleField
from ergon_site.access.policies.models import PolicyRow


class PolicyForm(forms.Form):
    """The form of the next version. `expected` is the version that the form was opened with."""

    expected = forms.IntegerField(widget=forms.HiddenInput)
    reason = WhyField()

    def __init__(self, policy: PolicyRow, data: Mapping[str, Any] | None = None, *, is_open: bool = True) -> None:
        self.kind = policy.value_class
        self.before = policy.read(policy.active.body).to_dict()
        super().__init__(data, initial={"expected": policy.active.number})
        for path, one in ruled.leaves(self.kind):
            self.fields[path] = RuleField(one)
            self.initial[path] = ruled.at(self.before, path)
        for field in self.fields.values():
            field.disabled = not is_open

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                self.kind.from_dict(self.body())
            except ValueError as error:
                self._tell(error)
        if not self.errors and self.body() == self.before:
            self.add_error(None, "There are no changes from the active version.")
        return self.cleaned_data

    def body(self) -> dict[str, Any]:
        """The policy that the fields say, as JSON."""
        return ruled.nested({path: self._value(path) for path, _ in ruled.leaves(self.kind)})

    def values(self, path: str) -> dict[str, Any] | None:
        """The values of the fields below a path, if each can be parsed."""
        names = [name for name in self.fields if name.startswith(f"{path}.")]
        if self.is_bound and any(name in self.errors for name in names):
            return None
        return {name.removeprefix(f"{path}."): self._value(name) for name in names}

    def reopened(self, policy: PolicyRow, data: Any) -> "PolicyForm":
        """The same input, on top of the version that is in force by now."""
        return PolicyForm(policy, {**data.dict(), "expected": policy.active.number})

    def _value(self, path: str) -> Any:
        before = self.initial[path]
        value = self.cleaned_data[path] if self.is_bound else before
        # 30 and 30.0 are no change.
        return before if type(value) in (int, float) and value == before else value

    def _tell(self, error: ValueError) -> None:
        """At the field that the error names."""
        place, _, problem = str(error).partition(" ")
        path = place.removeprefix(f"{self.kind.__name__}.")
        self.add_error(path if path in self.fields else None, sentence(problem))

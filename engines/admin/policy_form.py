"""The form of a policy: every field of every part, made from the policies themselves."""

from collections.abc import Iterator, Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminSelectWidget

from engines import policies
from engines.admin.fields import NameField, WhyField
from engines.admin.policy_fields import RuleField, leaves
from engines.admin.policy_sections import Section, sections
from engines.core.errors import PolicyError
from engines.models import KINDS, Policy
from ergon_site.access.detail import sentence


class PolicyForm(forms.Form):
    """What the next version says. `expected` is the version that the form was opened with."""

    expected = forms.IntegerField(widget=forms.HiddenInput)
    reason = WhyField()

    def __init__(self, policy: Policy, data: Mapping[str, Any] | None = None, *, is_open: bool = True) -> None:
        assert policy.active is not None  # noqa: S101 (a policy is made with its first version)
        self.kind = policies.KINDS[policy.kind]
        self.before = policies.read(policy.kind, policy.active.body).to_dict()
        super().__init__(data, initial={"expected": policy.active.number})
        for path, one in leaves(self.kind):
            self.fields[path] = RuleField(one)
            self.initial[path] = _at(self.before, path)
        for field in self.fields.values():
            field.disabled = not is_open

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                self.kind.from_dict(self.body())
            except PolicyError as error:
                self._tell(error)
        if not self.errors and self.body() == self.before:
            self.add_error(None, "Nothing differs from the version in force.")
        return self.cleaned_data

    def body(self) -> dict[str, Any]:
        """The policy that the fields say, as JSON."""
        return _nested({path: self._value(path) for path, _ in leaves(self.kind)})

    def sections(self) -> Iterator[Section]:
        return sections(self, self.kind)

    def values(self, path: str) -> dict[str, Any] | None:
        """What the fields below a path say now, if each can be read."""
        names = [name for name in self.fields if name.startswith(f"{path}.")]
        if self.is_bound and any(name in self.errors for name in names):
            return None
        return {name.removeprefix(f"{path}."): self._value(name) for name in names}

    def reopened(self, policy: Policy, data: Any) -> "PolicyForm":
        """The same input, on top of the version that is in force by now."""
        assert policy.active is not None  # noqa: S101 (likewise)
        return PolicyForm(policy, {**data.dict(), "expected": policy.active.number})

    def _value(self, path: str) -> Any:
        before = self.initial[path]
        value = self.cleaned_data[path] if self.is_bound else before
        # 30 and 30.0 are no change.
        return before if type(value) in (int, float) and value == before else value

    def _tell(self, error: PolicyError) -> None:
        """At the field that the error names."""
        place, _, problem = str(error).partition(" ")
        path = place.removeprefix(f"{self.kind.__name__}.")
        self.add_error(path if path in self.fields else None, sentence(problem))


class NewPolicyForm(forms.Form):
    """A policy that begins with every default."""

    name = NameField("policy", Policy)
    kind = forms.ChoiceField(
        choices=KINDS,
        widget=UnfoldAdminSelectWidget,
        help_text="A consumer policy is for inbound pipelines, a producer policy for outbound ones.",
    )
    reason = WhyField()


def _at(body: dict[str, Any], path: str) -> Any:
    for name in path.split("."):
        body = body[name]
    return body


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for path, value in values.items():
        *way, name = path.split(".")
        inner = body
        for part in way:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return body

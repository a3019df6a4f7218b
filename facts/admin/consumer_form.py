"""The form of a new consumer."""

from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminSelectWidget

from ergon_site.access.pages import ReasonForm
from facts.admin.forms import PLAIN
from facts.ledger import boundaries
from facts.provisioning import LONGEST_CONSUMER

STARTS = [("earliest", "the earliest fact"), ("latest", "new facts only"), ("offset", "an offset")]


def _boundaries() -> list[tuple[str, str]]:
    return [(str(one.pk), str(one)) for one in boundaries.in_use()]


class ConsumerForm(forms.Form):
    """The fields of a consumer."""

    name = forms.CharField(
        max_length=LONGEST_CONSUMER, strip=False, widget=PLAIN, help_text="The reader fetches under this name."
    )
    boundary = forms.ChoiceField(choices=_boundaries, widget=UnfoldAdminSelectWidget)
    start = forms.ChoiceField(choices=STARTS, widget=UnfoldAdminSelectWidget, label="Start at")
    offset = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=2**63 - 1,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Only with “an offset”.",
    )
    reason = ReasonForm.declared_fields["reason"]

    def clean(self) -> dict[str, Any]:
        asked = super().clean() or self.cleaned_data
        if asked.get("start") == "offset" and asked.get("offset") is None and "offset" not in self.errors:
            self.add_error("offset", "Enter the first offset.")
        return asked

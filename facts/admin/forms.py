"""The forms of the pages of boundaries."""

from typing import Any

from django import forms
from django.http import HttpRequest
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from ergon_site.access.console.amendments import AmendingForm
from ergon_site.access.console.pages import ReasonForm
from facts.ledger import MOST_AT_ONCE
from facts.models import Boundary, Zone
from facts.provisioning import LARGEST, LONGEST_CONSUMER, Allowance

PLAIN = UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})


def _zones() -> list[tuple[str, str]]:
    return [("", "Choose a zone"), *((zone.name, zone.name) for zone in Zone.objects.filter(retired_at__isnull=True))]


def _limit(name: str, label: str, help_text: str, **more: Any) -> forms.IntegerField:
    widget = UnfoldAdminIntegerFieldWidget
    return forms.IntegerField(
        label=label, min_value=1, max_value=LARGEST[name], widget=widget, help_text=help_text, **more
    )


class LimitsForm(forms.Form):
    row_ceiling = _limit(
        "row_ceiling", "Maximum facts", "New facts are refused at this number. Empty: no limit.", required=False
    )
    byte_ceiling = _limit(
        "byte_ceiling",
        "Maximum bytes",
        "New facts are refused at this size of canonical JSON. Empty: no limit.",
        required=False,
    )
    keep_days = _limit(
        "keep_days",
        "Retention in days",
        "Older facts may be removed once every consumer has confirmed them.",
        initial=30,
    )
    dedupe_days = _limit(
        "dedupe_days",
        "Retention of message ids in days",
        "After truncation, to recognise duplicates. Empty: 30 days more than facts.",
        required=False,
    )
    reason = ReasonForm.declared_fields["reason"]


class EditLimitsForm(AmendingForm, LimitsForm):
    def __init__(self, data: Any, boundary: Boundary) -> None:
        present = {name: getattr(boundary, name) for name in LARGEST}
        super().__init__(data, present=present, initial=present)

    def allowance(self) -> Allowance:
        return Allowance(**self.amended())


class BoundaryForm(LimitsForm):
    """The fields of a boundary: its zones and its source."""

    from_zone = forms.ChoiceField(choices=_zones, widget=UnfoldAdminSelectWidget)
    to_zone = forms.ChoiceField(choices=_zones, widget=UnfoldAdminSelectWidget)
    source_url = forms.URLField(
        label="Peer",
        required=False,
        max_length=500,
        assume_scheme="https",
        widget=PLAIN,
        help_text="The address of the deployment to pull from, one of ERGON_PEERS. Empty: facts are appended here.",
    )
    source_token = forms.CharField(
        label="Token",
        required=False,
        max_length=100,
        widget=PLAIN,
        help_text="The name of the file with the peer's token in the folder ERGON_PEER_TOKENS.",
    )
    source_consumer = forms.CharField(
        label="Consumer at the peer", required=False, max_length=LONGEST_CONSUMER, widget=PLAIN
    )
    with_artifacts = forms.BooleanField(
        label="Pull artifacts",
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Download referenced artifacts from the peer before each fact.",
    )
    of_a_peer = ("source_url", "source_token", "source_consumer", "with_artifacts")
    field_order = ("from_zone", "to_zone", *of_a_peer)

    def __init__(self, *args: Any, refusal: str = "", **kwargs: Any) -> None:
        """With a `refusal`, the reason why this person may not name a peer."""
        super().__init__(*args, **kwargs)
        self._refusal = refusal
        for name in self.of_a_peer if refusal else ():
            self.fields[name].widget.attrs["disabled"] = True
            self.fields[name].help_text = refusal

    def clean(self) -> dict[str, Any]:
        asked: dict[str, Any] = super().clean() or self.cleaned_data
        # A browser does not send a disabled field; what was sent all the same is refused, not ignored.
        for name in self.of_a_peer if self._refusal else ():
            if self.data.get(name):
                self.add_error(name, self._refusal)
        return asked

    @staticmethod
    def plan(asked: dict[str, Any]) -> dict[str, Any]:
        """A boundary as `create_boundary` takes it."""
        names = ("source_url", "source_consumer", "with_artifacts", *LARGEST)
        return {**{name: asked[name] for name in names}, "source_token_file": asked["source_token"]}


class SkipForm(ReasonForm):
    """Keeps the offsets that it names: when it is sent, the alarm may be about others."""

    form_before_template = "console/skip.html"
    offset = forms.IntegerField(widget=forms.HiddenInput)
    through = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if not self.is_bound:
            row = Boundary.objects.get(pk=self.object_id)
            if row.alarm_offset is not None and row.alarm_last is not None:
                through = min(row.alarm_last, row.alarm_offset + MOST_AT_ONCE - 1)
                self.initial |= {"offset": row.alarm_offset, "through": through}

    def get_before_template_context(self, request: HttpRequest, object_id: Any = None) -> dict[str, Any]:
        named = self.cleaned_data if self.is_bound else self.initial
        is_complete = {"offset", "through"} <= named.keys()
        return {"skipped": offsets_text(named["offset"], named["through"]) if is_complete else ""}


def offsets_text(first: int, last: int | None) -> str:
    return f"offset {first:,}" if last in {None, first} else f"the offsets {first:,} to {last:,}"

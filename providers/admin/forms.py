"""The forms of the providers' pages."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from ergon_site.access.console.amendments import AmendingForm
from ergon_site.access.console.fields import WhyField
from ergon_site.access.console.pages import ReasonForm
from ergon_site.access.database.clock import page_time
from providers.calls.overrides import FORCED_FOR, LARGEST, LONGEST
from providers.core.exchange import Who
from providers.models import Gate
from providers.models.columns import NAME

PLAIN = UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
A_DAY = 86_400


class MinutesField(forms.FloatField):
    """A number of minutes, with a few that can be chosen."""

    presets = (("15 min", "15"), ("30 min", "30"), ("1 h", "60"), ("4 h", "240"))


class ForceForm(ReasonForm):
    minutes = MinutesField(
        label="Duration in minutes",
        initial=FORCED_FOR // timedelta(minutes=1),
        required=False,
        min_value=0.1,
        max_value=LONGEST / timedelta(minutes=1),
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="Then the breaker works normally again.",
    )
    until = forms.DateTimeField(
        label="Or until",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"type": "datetime-local"}),
        help_text="A time in UTC, instead of a duration.",
    )
    is_endless = forms.BooleanField(label="Until it is reset", required=False, widget=UnfoldBooleanWidget)
    field_order = ("minutes", "until", "is_endless", "reason")

    def clean_until(self) -> datetime | None:
        until: datetime | None = self.cleaned_data["until"]
        if until is not None and not timedelta(0) < until - page_time() <= LONGEST:
            msg = f"Must be a time from now on, at most {LONGEST.days:,} days ahead."
            raise forms.ValidationError(msg)
        return until

    @property
    def lasting(self) -> timedelta | None:
        if self.cleaned_data["is_endless"]:
            return None
        if until := self.cleaned_data["until"]:
            return until - page_time()  # type: ignore[no-any-return]
        minutes = self.cleaned_data["minutes"]
        return timedelta(minutes=minutes) if minutes else FORCED_FOR


class QuotaForm(forms.Form):
    limit = forms.IntegerField(
        label="Calls in each window",
        min_value=0,
        max_value=LARGEST,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="0 blocks all calls.",
    )
    window = forms.FloatField(
        label="Window in seconds",
        initial=A_DAY,
        min_value=1,
        max_value=LONGEST.total_seconds(),
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="60 is a minute, 3600 an hour, 86400 a day. Windows start at multiples of their length.",
    )
    reason = WhyField()

    def terms(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("limit", "window", "reason")}


class EditQuotaForm(AmendingForm, QuotaForm):
    def __init__(self, data: Any, gate: Gate) -> None:
        present = {"limit": gate.quota_limit, "window": gate.quota_window}
        initial = {name: f"{value:.15g}" for name, value in present.items() if value is not None}
        super().__init__(data, present=present, initial=initial)

    def terms(self) -> dict[str, Any]:
        return super().terms() | {name: value for name, value in self.amended().items() if value is not None}


class CapabilityForm(forms.Form):
    provider_name = forms.CharField(label="Provider", max_length=NAME, widget=PLAIN, help_text="Such as rank.")
    capability = forms.CharField(max_length=NAME, widget=PLAIN, help_text="Such as rank_snapshot.")


class NewQuotaForm(CapabilityForm, QuotaForm):
    tenant_id = forms.CharField(
        label="Tenant",
        max_length=NAME,
        widget=PLAIN,
        help_text="Usually a UUID. A star, also as the capability, means all that share the provider's account.",
    )
    field_order = ("tenant_id", "provider_name", "capability", "limit", "window", "reason")

    def who(self) -> Who:
        return Who.of(*(self.cleaned_data[name] for name in Who._fields))


class NewPolicyForm(CapabilityForm):
    """A policy that begins with what the provider's class says."""

    reason = WhyField()

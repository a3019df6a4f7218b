"""Forms of the client pages."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
)

from ergon_site.access.clients import OVERLAP, Grant
from ergon_site.access.core.scopes import SCOPES
from ergon_site.access.models import ApiClient

LONGEST_LIFETIME = 3650


class LinesField(forms.CharField):
    """A list, one item a line."""

    def __init__(self, *, parse: Callable[[str], Any] = str, **options: Any) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 2})
        super().__init__(required=False, widget=widget, **options)
        self.parse = parse

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: str) -> list[Any]:
        lines = [line.strip() for line in super().clean(value).splitlines() if line.strip()]
        try:
            return [self.parse(line) for line in lines]
        except ValueError:
            msg = "Each line must be a UUID."
            raise forms.ValidationError(msg) from None


class LifetimeField(forms.IntegerField):
    """Days that a token lives; none means for ever."""

    widget = UnfoldAdminIntegerFieldWidget

    def __init__(self, **options: Any) -> None:
        help_text = "Empty: the token does not expire."
        super().__init__(min_value=1, max_value=LONGEST_LIFETIME, required=False, help_text=help_text, **options)

    def clean(self, value: Any) -> timedelta | None:
        number = super().clean(value)
        return timedelta(days=number) if number else None


class ClientForm(forms.ModelForm):
    """What a client may do."""

    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope} – {meaning}") for scope, meaning in SCOPES.items()],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        required=False,
        help_text="None chosen, but a zone, consumer or bucket named: the four scopes of facts and objects.",
    )
    zones = LinesField(help_text="Zones it may speak for, one a line.")
    target_zones = LinesField(help_text="Zones it may send to, one a line.")
    consumers = LinesField(help_text="Consumers whose facts it may read, one a line.")
    buckets = LinesField(help_text="Buckets whose artifacts it may use, one a line.")
    tenants = LinesField(parse=UUID, help_text="Tenants it may see, one UUID a line.")

    class Meta:
        model = ApiClient
        fields: ClassVar = ["name", "scopes", "zones", "target_zones", "consumers", "buckets", "tenants", "rate"]

    def grant(self) -> Grant:
        return Grant(**{name: self.cleaned_data[name] for name in Grant.__dataclass_fields__})


class NewClientForm(ClientForm):
    """A client and its first token."""

    lifetime = LifetimeField(label="Token lives for days")

    def lifetime_given(self) -> timedelta | None:
        return self.cleaned_data["lifetime"]  # type: ignore[no-any-return]


class RotationForm(forms.Form):
    """How a client changes to a new token."""

    overlap = forms.IntegerField(
        label="Earlier tokens go on for minutes",
        min_value=0,
        max_value=60 * 24 * 30,
        initial=int(OVERLAP.total_seconds() // 60),
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Time to put the new token in place. 0 stops the earlier ones at once.",
    )
    lifetime = LifetimeField(label="New token lives for days")

    def terms(self) -> dict[str, Any]:
        return {
            "overlap": timedelta(minutes=self.cleaned_data["overlap"]),
            "lifetime": self.cleaned_data["lifetime"],
        }

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
from ergon_site.access.core import certificates
from ergon_site.access.core.scopes import SCOPES
from ergon_site.access.models import ApiClient

LONGEST_LIFETIME = 3650
GRANT = tuple(Grant.__dataclass_fields__)


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
        help_text = "Empty: it does not expire. A certificate given with it is accepted as long."
        super().__init__(min_value=1, max_value=LONGEST_LIFETIME, required=False, help_text=help_text, **options)

    def clean(self, value: Any) -> timedelta | None:
        number = super().clean(value)
        return timedelta(days=number) if number else None


class ClientForm(forms.ModelForm):
    """What a client may do."""

    shown: ClassVar = ("name", *GRANT, "certificate", "certificate_expires_at", "certificate_used_at")
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
        fields: ClassVar = ["name", *GRANT, "certificate", "certificate_expires_at"]

    def clean_certificate(self) -> str | None:
        told = self.cleaned_data["certificate"]
        try:
            return certificates.identity(told) if told else None
        except certificates.UnusableIdentityError as error:
            raise forms.ValidationError(str(error)) from None

    def grant(self) -> Grant:
        return Grant(**{name: self.cleaned_data[name] for name in GRANT})


class NewClientForm(ClientForm):
    """A client and its first token."""

    shown: ClassVar = ("name", *GRANT, "certificate", "lifetime")
    lifetime = LifetimeField(label="Token lives for days")

    def terms(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("lifetime", "certificate")}


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

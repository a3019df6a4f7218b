"""Forms of the client pages."""

from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminIntegerFieldWidget

from ergon_site.access.admin.clients import EndlessField, LifetimeField, LinesField, lifetime, told_in_the_form
from ergon_site.access.clients import OVERLAP, Grant
from ergon_site.access.core import certificates
from ergon_site.access.core.scopes import SCOPES
from ergon_site.access.core.terms import UnusableTermError, check_name, check_rate
from ergon_site.access.models import ApiClient

GRANT = tuple(Grant.__dataclass_fields__)


class ClientForm(forms.ModelForm):
    """The grants of a client."""

    shown: ClassVar = ("name", *GRANT, "certificate", "certificate_expires_at", "certificate_used_at")
    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope} – {meaning}") for scope, meaning in SCOPES.items()],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        required=False,
        help_text="At least one. With none, but a zone, consumer or bucket: the four scopes of facts and objects.",
    )
    zones = LinesField(help_text="Zones it may send from, one per line.")
    target_zones = LinesField(help_text="Zones it may send to, one per line.")
    consumers = LinesField(help_text="Consumers it may read as, one per line.")
    buckets = LinesField(help_text="Buckets it may use, one per line.")
    tenants = LinesField(parse=UUID, help_text="Tenants it may see, one UUID per line.")

    class Meta:
        model = ApiClient
        fields: ClassVar = ["name", *GRANT, "certificate", "certificate_expires_at"]

    def clean_name(self) -> str:
        with told_in_the_form():
            check_name(self.cleaned_data["name"])
        return str(self.cleaned_data["name"])

    def clean_rate(self) -> float | None:
        with told_in_the_form():
            check_rate(self.cleaned_data["rate"])
        return self.cleaned_data["rate"]  # type: ignore[no-any-return]

    def clean_certificate(self) -> str | None:
        told = self.cleaned_data["certificate"]
        with told_in_the_form():
            return certificates.identity(told) if told else None

    def clean(self) -> dict[str, Any]:
        super().clean()
        if not self.errors:
            try:
                self.grant().columns()
            except UnusableTermError as error:
                self.add_error("scopes", str(error))
        return self.cleaned_data

    def grant(self) -> Grant:
        return Grant(**{name: self.cleaned_data[name] for name in GRANT})


class NewClientForm(ClientForm):
    """A client and its first token."""

    shown: ClassVar = ("name", *GRANT, "certificate", "lifetime", "is_endless")
    lifetime = LifetimeField(label="Token lifetime in days")
    is_endless = EndlessField()

    def terms(self) -> dict[str, Any]:
        return {"lifetime": lifetime(self), "certificate": self.cleaned_data["certificate"]}


class RotationForm(forms.Form):
    """The terms of a token rotation."""

    overlap = forms.IntegerField(
        label="Overlap in minutes",
        min_value=0,
        max_value=60 * 24 * 30,
        initial=int(OVERLAP.total_seconds() // 60),
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="How long the earlier tokens stay valid. 0 revokes them at once.",
    )
    lifetime = LifetimeField(label="Lifetime of the new token in days")
    is_endless = EndlessField()

    def terms(self) -> dict[str, Any]:
        return {"overlap": timedelta(minutes=self.cleaned_data["overlap"]), "lifetime": lifetime(self)}

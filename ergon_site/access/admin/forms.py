"""Forms of the client pages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminTextareaWidget,
    UnfoldBooleanWidget,
)

from ergon_site.access.clients import LIFETIME, OVERLAP, Grant, check_zones, grant_of
from ergon_site.access.console.amendments import AmendingForm
from ergon_site.access.core import terms
from ergon_site.access.core.scopes import SCOPES
from ergon_site.access.models import ApiClient

GRANT = tuple(Grant.__dataclass_fields__)


@contextmanager
def told_in_the_form() -> Iterator[None]:
    """Turn a refusal of the domain into an error of the field."""
    try:
        yield
    except terms.UnusableTermError as error:
        raise forms.ValidationError(str(error)) from None


class LinesField(forms.CharField):
    def __init__(
        self,
        *,
        parse: Callable[[str], Any] = str,
        check: Callable[[list[str]], None] = lambda _lines: None,
        **options: Any,
    ) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 2})
        super().__init__(required=False, widget=widget, **options)
        self.parse, self.check = parse, check

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: str) -> list[Any]:
        lines = [line.strip() for line in super().clean(value).splitlines() if line.strip()]
        try:
            with told_in_the_form():
                terms.check_items("this list", lines)
                self.check(lines)
            return [self.parse(line) for line in lines]
        except ValueError:
            msg = "Each line must be a UUID."
            raise forms.ValidationError(msg) from None


def lifetime_field(label: str) -> forms.IntegerField:
    return forms.IntegerField(
        label=label,
        required=False,
        min_value=1,
        max_value=terms.LONGEST_TIME.days,
        initial=LIFETIME.days,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="A certificate given with it is accepted as long.",
    )


def endless_field() -> forms.BooleanField:
    return forms.BooleanField(label="Never expires", required=False, widget=UnfoldBooleanWidget)


def lifetime(form: forms.Form | forms.ModelForm) -> timedelta | None:
    """The lifetime of a token by both fields of a form; None for ever."""
    days = form.cleaned_data["lifetime"]
    return None if form.cleaned_data["is_endless"] else timedelta(days=days) if days else LIFETIME


class ClientForm(forms.ModelForm):
    scopes = forms.MultipleChoiceField(
        choices=[(scope, f"{scope} – {meaning}") for scope, meaning in SCOPES.items()],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        required=False,
        help_text="At least one. With none, but a zone, consumer or bucket: the four scopes of facts and objects.",
    )
    zones = LinesField(check=check_zones, help_text="Zones it may send from, one per line.")
    target_zones = LinesField(check=check_zones, help_text="Zones it may send to, one per line.")
    consumers = LinesField(help_text="Consumers it may read as, one per line.")
    buckets = LinesField(help_text="Buckets it may use, one per line.")
    tenants = LinesField(parse=UUID, help_text="Tenants it may see, one UUID per line.")

    class Meta:
        model = ApiClient
        fields: ClassVar = ["name", *GRANT, "certificate", "certificate_expires_at"]
        labels: ClassVar = {"certificate_used_at": "Certificate last used"}

    def clean_name(self) -> str:
        with told_in_the_form():
            terms.check_name(self.cleaned_data["name"])
        return str(self.cleaned_data["name"])

    def clean_rate(self) -> float | None:
        with told_in_the_form():
            terms.check_rate(self.cleaned_data["rate"])
        return self.cleaned_data["rate"]  # type: ignore[no-any-return]

    def clean_certificate(self) -> str | None:
        told = self.cleaned_data["certificate"]
        with told_in_the_form():
            return terms.certificate_identity(told) if told else None

    def clean(self) -> dict[str, Any]:
        super().clean()
        if not self.errors:
            try:
                self.grant().columns()
            except terms.UnusableTermError as error:
                self.add_error("scopes", str(error))
        return self.cleaned_data

    def grant(self) -> Grant:
        return Grant(**{name: self.cleaned_data[name] for name in GRANT})


class EditClientForm(AmendingForm, ClientForm):
    shown: ClassVar = ("name", *GRANT, "certificate", "certificate_expires_at", "certificate_used_at")

    def __init__(self, *args: Any, instance: ApiClient, **options: Any) -> None:
        until = instance.certificate_expires_at
        present = grant_of(instance) | {
            # As the fields have them.
            "scopes": [scope for scope in SCOPES if scope in instance.scopes],
            "certificate": instance.certificate,
            "certificate_expires_at": until and until.replace(microsecond=0),
        }
        super().__init__(*args, instance=instance, present=present, **options)

    def grant(self) -> Grant:
        return Grant(**{name: self.amended()[name] for name in GRANT})


class NewClientForm(ClientForm):
    shown: ClassVar = ("name", *GRANT, "certificate", "lifetime", "is_endless")
    lifetime = lifetime_field("Token lifetime in days")
    is_endless = endless_field()

    def terms(self) -> dict[str, Any]:
        return {"lifetime": lifetime(self), "certificate": self.cleaned_data["certificate"]}


class RotationForm(forms.Form):
    overlap = forms.IntegerField(
        label="Overlap in minutes",
        min_value=0,
        max_value=60 * 24 * 30,
        initial=int(OVERLAP.total_seconds() // 60),
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="How long the earlier tokens stay valid. 0 revokes them at once.",
    )
    lifetime = lifetime_field("Lifetime of the new token in days")
    is_endless = endless_field()

    def terms(self) -> dict[str, Any]:
        return {"overlap": timedelta(minutes=self.cleaned_data["overlap"]), "lifetime": lifetime(self)}

"""Fields of the client forms, and how they tell what is wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminIntegerFieldWidget, UnfoldAdminTextareaWidget, UnfoldBooleanWidget

from ergon_site.access.clients import LIFETIME
from ergon_site.access.core.terms import LONGEST_TIME, UnusableTermError, check_items


@contextmanager
def told_in_the_form() -> Iterator[None]:
    """What the domain refuses is a fault of the field."""
    try:
        yield
    except UnusableTermError as error:
        raise forms.ValidationError(str(error)) from None


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
            with told_in_the_form():
                check_items("this list", lines)
            return [self.parse(line) for line in lines]
        except ValueError:
            msg = "Each line must be a UUID."
            raise forms.ValidationError(msg) from None


class LifetimeField(forms.IntegerField):
    """Days that a token lives."""

    widget = UnfoldAdminIntegerFieldWidget

    def __init__(self, **options: Any) -> None:
        limits: dict[str, Any] = {"min_value": 1, "max_value": LONGEST_TIME.days, "initial": LIFETIME.days}
        help_text = "A certificate given with it is accepted as long."
        super().__init__(required=False, help_text=help_text, **limits, **options)

    def clean(self, value: Any) -> timedelta:
        number = super().clean(value)
        return timedelta(days=number) if number else LIFETIME


class EndlessField(forms.BooleanField):
    """That a token lives for ever, whatever its days."""

    def __init__(self) -> None:
        super().__init__(label="Never expires", required=False, widget=UnfoldBooleanWidget)


def lifetime(form: forms.Form | forms.ModelForm) -> timedelta | None:
    """How long the token of a form with both fields lives; None for ever."""
    return None if form.cleaned_data["is_endless"] else form.cleaned_data["lifetime"]

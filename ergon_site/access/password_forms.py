"""The forms of the console that take a password, with a limit on failures."""

import math
from typing import Any

from django.contrib.auth.views import PasswordChangeView
from django.core.exceptions import ValidationError
from unfold.forms import AdminOwnPasswordChangeForm, AuthenticationForm

from ergon_site.access import addresses, logins

MINUTE = 60


class LoginForm(AuthenticationForm):
    """Refuses an attempt without looking at the password where too many have failed."""

    def clean(self) -> dict[str, Any]:
        account, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not account or not password:
            return dict(super().clean())
        address = addresses.client_address(self.request)
        if wait := logins.begin(account, address):
            raise ValidationError(_refusal(wait), code="locked")
        try:
            checked = dict(super().clean())
        except ValidationError:
            logins.fail(account, address)
            raise
        logins.succeed(account, address)
        return checked


class PasswordForm(AdminOwnPasswordChangeForm):
    """Counts a wrong old password like a failed login: a stolen session must not be a way to guess it."""

    def __init__(self, *args: Any, address: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = address

    def clean_old_password(self) -> str:
        account = self.user.get_username()
        if wait := logins.begin(account, self.address):
            raise ValidationError(_refusal(wait), code="locked")
        try:
            password: str = super().clean_old_password()
        except ValidationError:
            logins.fail(account, self.address)
            raise
        logins.take_back(account, self.address)
        return password


class PasswordPage(PasswordChangeView):
    form_class = PasswordForm

    def get_form_kwargs(self) -> dict[str, Any]:
        return {**super().get_form_kwargs(), "address": addresses.client_address(self.request)}


def _refusal(wait: float) -> str:
    minutes = math.ceil(wait / MINUTE)
    return f"Too many failed logins. Try again in {minutes} minute{'' if minutes == 1 else 's'}."

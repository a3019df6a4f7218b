"""The forms of the console that take a password, with a limit on failures."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from django.core.exceptions import ValidationError
from django.forms import Form
from unfold.forms import AdminOwnPasswordChangeForm, AdminPasswordChangeForm, AuthenticationForm

from ergon_site.access import addresses, logins

MINUTE = 60
MISMATCH = {"password_mismatch": "The two passwords are not the same."}

T = TypeVar("T")


class LoginForm(AuthenticationForm):
    error_messages: ClassVar = {
        # The same for accounts without access to the console: nobody learns which accounts there are.
        "invalid_login": "Wrong username or password.",
        "inactive": "Wrong username or password.",
    }

    def clean(self) -> dict[str, Any]:
        account, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not account or not password:
            return dict(super().clean())
        address = addresses.client_address(self.request)
        checked = _counted(account, address, super().clean)
        logins.succeed(account, address)
        return dict(checked)


class PasswordForm(AdminOwnPasswordChangeForm):
    """Counts a wrong old password like a failed login: a stolen session must not be a way to guess it."""

    error_messages: ClassVar = {**MISMATCH, "password_incorrect": "The old password is wrong."}

    def __init__(self, *args: Any, address: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = address
        ask_again(self, "new_password2", "New password again")

    def clean_old_password(self) -> str:
        account = self.user.get_username()
        password: str = _counted(account, self.address, super().clean_old_password)
        logins.take_back(account, self.address)
        return password


class OtherPasswordForm(AdminPasswordChangeForm):
    """The form of an administrator for the password of another user."""

    error_messages: ClassVar = MISMATCH

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if "usable_password" in self.fields:
            ask_for_use(self)
        ask_again(self, "password2", "Password again")


def ask_again(form: Form, name: str, label: str) -> None:
    form.fields[name].label, form.fields[name].help_text = label, ""


def ask_for_use(form: Form) -> None:
    """Whether there is a password at all."""
    field = form.fields["usable_password"]
    field.label, field.help_text = "Log in by password", "Without one the user logs in by another way, if you have one."


def _counted(account: str, address: str, check: Callable[[], T]) -> T:
    """Check a password, as an attempt that counts; where too many have failed, refuse it unseen."""
    if wait := logins.begin(account, address):
        minutes = math.ceil(wait / MINUTE)
        msg = f"Too many failed logins. Try again in {minutes} minute{'' if minutes == 1 else 's'}."
        raise ValidationError(msg, code="locked")
    try:
        return check()
    except ValidationError:
        logins.fail(account, address)
        raise

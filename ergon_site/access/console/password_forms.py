"""The forms of the console that take a password, with a limit on failures."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from unfold.forms import AdminOwnPasswordChangeForm, AuthenticationForm

from ergon_site.access import addresses, logins

MINUTE = 60

T = TypeVar("T")


class LoginForm(AuthenticationForm):
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

    def __init__(self, *args: Any, address: str, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = address

    def clean_old_password(self) -> str:
        account = self.user.get_username()
        password: str = _counted(account, self.address, super().clean_old_password)
        logins.take_back(account, self.address)
        return password


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

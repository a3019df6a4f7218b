"""The login form of the console, with a limit on failures."""

import math
from typing import Any

from django.core.exceptions import ValidationError
from unfold.forms import AuthenticationForm

from ergon_site.access import addresses, logins

MINUTE = 60


class LoginForm(AuthenticationForm):
    """Refuses an attempt without looking at the password where too many have failed."""

    def clean(self) -> dict[str, Any]:
        account, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if not account or not password:
            return dict(super().clean())
        address = addresses.of(self.request)
        if wait := logins.begin(account, address):
            raise ValidationError(_refusal(wait), code="locked")
        try:
            checked = dict(super().clean())
        except ValidationError:
            logins.fail(account, address)
            raise
        logins.succeed(account, address)
        return checked


def _refusal(wait: float) -> str:
    minutes = math.ceil(wait / MINUTE)
    return f"Too many failed logins. Try again in {minutes} minute{'' if minutes == 1 else 's'}."

"""The statements of whichever database this is."""

from types import ModuleType

from django.db import connection

from engines.transactions.statements import postgresql, sqlite


def statements() -> ModuleType:
    return postgresql if connection.vendor == "postgresql" else sqlite

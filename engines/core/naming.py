"""Names that people give: fit for addresses, commands and logs."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def refusal(noun: str, name: str) -> str | None:
    """The error in a name, or None."""
    if NAME.fullmatch(name):
        return None
    rule = "has 1 to 100 letters, digits, '.', '_' and '-', and starts with a letter or digit"
    return f"a {noun}'s name {rule}, not {name!r}"

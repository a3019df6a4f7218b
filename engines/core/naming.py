"""Names that people give: fit for addresses, commands and logs."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def refusal(noun: str, name: str) -> str | None:
    """What is wrong with a name, or None."""
    if NAME.fullmatch(name):
        return None
    return f"a {noun}'s name has at most 100 letters, digits, '.', '_' and '-', not {name!r}"

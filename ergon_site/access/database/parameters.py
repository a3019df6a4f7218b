"""Parameters of statements that are prepared: the server knows them by numbers, the statements by names."""

import re
from functools import lru_cache

NAMED = re.compile(r"%\((\w+)\)s")


@lru_cache(maxsize=256)
def numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with numbers in place of the names of its parameters; and the names in the order of the numbers."""
    names = tuple(dict.fromkeys(NAMED.findall(statement)))
    number = {name: f"${place}" for place, name in enumerate(names, 1)}
    return NAMED.sub(lambda found: number[found[1]], statement).replace("%%", "%").encode(), names

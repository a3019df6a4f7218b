"""The characters that a name may contain, and what is told of a peer."""

import unicodedata

from ergon_site.access.core.texts import storable

LONGEST_TOLD = 1000

# Control characters, halves of surrogate pairs, separators of lines and of paragraphs.
UNWANTED = frozenset({"Cc", "Cs", "Zl", "Zp"})


def has_controls(text: str) -> bool:
    """Whether it holds what no name has. Blanks and joiners of other scripts are none of it, though not printable."""
    return not text.isprintable() and any(unicodedata.category(character) in UNWANTED for character in text)


def told(text: str) -> str:
    """What a peer has said, or what is said of what it has sent: as every column takes it, and not without end."""
    return storable(text[:LONGEST_TOLD])

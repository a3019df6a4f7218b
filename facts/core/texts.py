"""The characters that a name may contain."""

import unicodedata

# Control characters, halves of surrogate pairs, separators of lines and of paragraphs.
UNWANTED = frozenset({"Cc", "Cs", "Zl", "Zp"})


def has_controls(text: str) -> bool:
    """Whether it holds what no name has. Blanks and joiners of other scripts are none of it, though not printable."""
    return not text.isprintable() and any(unicodedata.category(character) in UNWANTED for character in text)

"""Which texts a database can hold."""


def is_storable(text: str) -> bool:
    """Whether every column takes it: no U+0000, and no half of a surrogate pair."""
    if "\x00" in text:
        return False
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)

"""Texts: what a database can store, keys, sentences, and the longest texts that people may enter."""

MOST_DIGITS = 18
# Of a reason, in the console, over the API and from commands alike.
LONGEST_REASON = 1000


def is_storable(text: str) -> bool:
    """Whether every column takes it: no U+0000, and no half of a surrogate pair."""
    if "\x00" in text:
        return False
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def storable(text: str) -> str:
    """A text that every column takes, with a sign in place of what it does not."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def is_key(text: str) -> bool:
    """Whether it is the number of a row: plain digits, no more of them than a column of 64 bits takes."""
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def sentence(text: object) -> str:
    """A text without capital and full stop, such as the refusal of a verb, as pages and answers show it."""
    words = str(text)
    return f"{words[:1].upper()}{words[1:]}."

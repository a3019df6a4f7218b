"""Which texts a database can hold, which of them are keys, and how they become sentences."""

import pytest

from ergon_site.access.core.texts import is_key, is_storable, sentence


@pytest.mark.parametrize("text", ["", "plain", "Größe", "\U0001f600", "\u2028", "\uffff"])
def test_whole_characters_can_be_stored(text: str) -> None:
    assert is_storable(text)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "a\udfffb", "ü\udbff"])
def test_nul_and_half_characters_cannot(text: str) -> None:
    assert not is_storable(text)


@pytest.mark.parametrize("text", ["0", "7", "9" * 18])
def test_digits_are_keys(text: str) -> None:
    assert is_key(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", "1\x00", "abc", "²", "٣", " 1", "9" * 19, "9" * 5000])
def test_nothing_else_is_a_key(text: str) -> None:
    assert not is_key(text)


@pytest.mark.parametrize(("text", "shown"), [("", "."), ("no", "No."), ("the API is off", "The API is off.")])
def test_a_sentence_begins_with_a_capital_and_ends_with_a_full_stop(text: str, shown: str) -> None:
    assert sentence(text) == shown
    assert sentence(ValueError(text)) == shown

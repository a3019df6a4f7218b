"""Which texts a database can hold, and which of them are keys."""

import pytest

from ergon_site.access.core.texts import is_key, is_storable


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

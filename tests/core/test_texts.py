"""Which texts a database can hold."""

import pytest

from ergon_site.access.core.texts import is_storable


@pytest.mark.parametrize("text", ["", "plain", "Größe", "\U0001f600", "\u2028", "\uffff"])
def test_whole_characters_can_be_stored(text: str) -> None:
    assert is_storable(text)


@pytest.mark.parametrize("text", ["\x00", "a\x00b", "\ud800", "a\udfffb", "ü\udbff"])
def test_nul_and_half_characters_cannot(text: str) -> None:
    assert not is_storable(text)

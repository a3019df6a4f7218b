from hypothesis import given, strategies as st

from ergon_site.access.core import tokens
from ergon_site.access.core.tokens import ENTROPY

chance = st.binary(min_size=ENTROPY, max_size=ENTROPY)


@given(chance)
def test_a_minted_token_is_read_back_as_itself(random: bytes) -> None:
    token = tokens.mint(random)
    assert tokens.parse(token.text) == token
    assert token.matches(token.digest)


@given(chance, chance)
def test_different_chance_gives_different_tokens(first: bytes, second: bytes) -> None:
    assert (tokens.mint(first).digest == tokens.mint(second).digest) == (first == second)


@given(st.text())
def test_any_other_text_is_refused_or_read_without_failing(text: str) -> None:
    token = tokens.parse(text)
    assert token is None or token.text == text


def test_what_a_token_prints_as_keeps_its_secret() -> None:
    token = tokens.mint(bytes(range(ENTROPY)))
    assert token.text not in repr(token)
    assert token.prefix in repr(token)


def test_texts_that_cannot_be_tokens_are_refused() -> None:
    wrong = [
        "",
        "ergon_",
        "ergon__secret",
        "ergon_prefix_",
        "other_prefix_secret",
        "ergon_prefix_" + "x" * 200,
        "ergon_ä_x",
    ]
    assert [tokens.parse(text) for text in wrong] == [None] * len(wrong)

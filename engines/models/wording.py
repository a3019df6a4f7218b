"""Shared by several tables: the length of names, and states as words."""

from collections.abc import Iterable
from enum import StrEnum

NAME = 100


def words(states: Iterable[StrEnum]) -> list[tuple[str, str]]:
    """States as choices."""
    return [(state.value, state.value) for state in states]

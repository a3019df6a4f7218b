"""The list of dead letters: its filters and columns."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.http import HttpRequest
from unfold.decorators import display

from engines.admin.transaction_filters import CategoryFilter
from engines.core.states import GroupState, LetterState
from engines.models import DeadLetter
from ergon_site.access.lists import Choice, Typed, identifier, tag, unbroken, words

KINDS = {"open": "bad", "replayed": "good", "discarded": "warning"}
GROUP_KINDS = {"open": "bad", "regressed": "bad", "muted": "warning", "resolved": "good"}


class LetterStateFilter(Choice):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in LetterState]


class GroupStateFilter(Choice):
    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state.value, state.value) for state in GroupState]


class SourceFilter(Typed):
    title = parameter_name = "source"
    help_text = "The name of a pipeline or provider"


class GroupFilter(Typed):
    title = parameter_name = "group"
    help_text = "Group number"


class LetterColumns:
    """The columns of the list of dead letters."""

    list_display: ClassVar = ("key", "state_word", "where", "what", "kind", "created_at", "settled")
    list_filter: ClassVar = [LetterStateFilter, SourceFilter, CategoryFilter, GroupFilter]
    search_help_text = "A transaction id, or its start"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = {
        "id": "id",
        "transaction": "uid",
        **{name: name for name in ("source", "step", "category", "error_type", "message", "state", "group_id")},
        **{name: name for name in ("created_at", "settled_at", "settled_by", "reason", "replayed_as")},
    }

    @display(description="transaction")
    def key(self, letter: DeadLetter) -> str:
        return identifier(letter.uid)

    @display(description="state")
    def state_word(self, letter: DeadLetter) -> str:
        return tag(letter.state, KINDS)

    @display(description="error")
    def what(self, letter: DeadLetter) -> str:
        return words(f"{letter.error_type}: {letter.message}".removesuffix(": "))

    @display(description="source")
    def where(self, letter: DeadLetter) -> str:
        return words(letter.source)

    @display(description="category")
    def kind(self, letter: DeadLetter) -> str:
        return unbroken(letter.category)

    @display(description="decided by", empty_value="–")
    def settled(self, letter: DeadLetter) -> str:
        return letter.settled_by

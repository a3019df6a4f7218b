"""The list of groups of dead letters: its filters and columns."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from unfold.decorators import display

from engines.admin import group_page, links
from engines.admin.letter_list import GROUP_KINDS, GroupStateFilter, SourceFilter
from engines.admin.transaction_filters import CategoryFilter
from engines.models import DeadLetterGroup
from ergon_site.access.lists import tag, two_lines, unbroken, words


class GroupColumns:
    """The columns of the list of dead-letter groups."""

    list_display: ClassVar = ("error", "state_word", "where", "kind", "open_of", "seen", "day")
    list_display_links: ClassVar = ("error",)
    list_filter: ClassVar = [GroupStateFilter, SourceFilter, CategoryFilter]
    search_help_text = "Part of an error, a message or a source"
    list_before_template = "console/letters_link.html"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = {
        **{name: name for name in ("id", "source", "step", "category", "error_type", "message", "state")},
        **{name: name for name in ("open_count", "total", "first_seen_at", "last_seen_at", "decided_by")},
    }

    @display(description="error")
    def error(self, group: DeadLetterGroup) -> str:
        return words(str(group))

    @display(description="state")
    def state_word(self, group: DeadLetterGroup) -> str:
        return tag(group.state, GROUP_KINDS)

    @display(description="source and step")
    def where(self, group: DeadLetterGroup) -> str:
        return two_lines(group.source, group.step)

    @display(description="category")
    def kind(self, group: DeadLetterGroup) -> str:
        return unbroken(group.category)

    @display(description="last seen")
    def seen(self, group: DeadLetterGroup) -> str:
        return two_lines(f"{group.last_seen_at:%Y-%m-%d %H:%M:%S}", f"first {group.first_seen_at:%Y-%m-%d %H:%M:%S}")

    @display(description="open of all")
    def open_of(self, group: DeadLetterGroup) -> str:
        return links.anchor(links.letters(group), f"{group.open_count:,} of {group.total:,}")

    @display(description="last 24 h")
    def day(self, group: Any) -> str:
        return group_page.sparkline(group.trend)

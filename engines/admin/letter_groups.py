"""Groups of dead letters: one line for each kind of failure, and what can be decided about all of them at once."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from engines import bulk, dead_letters
from engines.admin import group_page, parts
from engines.admin.forms import GroupForm, ReplayGroupForm
from engines.admin.group_list import GroupColumns
from engines.core.states import GroupState
from engines.models import DeadLetterGroup
from engines.reads.dead_letters import list_groups
from engines.reads.filters import ListingError
from ergon_site.access.detail import DetailPage
from ergon_site.access.dialogs import dialog_action
from ergon_site.access.keyset import KeysetQuery
from ergon_site.access.lists import KeysetPage
from ergon_site.access.pages import ReasonForm, actor

MUTE = {
    "title": "Mute the group",
    "description": "It no longer needs attention; new failures are still recorded here.",
}
RESOLVE = {
    "title": "Resolve the group",
    "description": "The cause is fixed. If the same failure occurs again, the group reopens.",
}
REOPEN = {"title": "Reopen the group", "description": "It needs attention again."}
REPLAY = {"title": "Replay all dead letters of the group", "form_class": ReplayGroupForm, "submit": "Replay all"}
DISCARD = {"title": "Discard all dead letters of the group", "form_class": GroupForm, "submit": "Discard all"}


@admin.register(DeadLetterGroup)
class GroupsPage(GroupColumns, KeysetPage, DetailPage):
    detail_template = "console/letter_group.html"
    actions_detail: ClassVar = ("mute", "resolve", "reopen", "replay_all", "discard_all")

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        try:
            return list_groups(wanted)
        except ListingError as error:
            raise IncorrectLookupParameters from error

    def decorate(self, request: HttpRequest, rows: list[DeadLetterGroup]) -> list[DeadLetterGroup]:
        return group_page.with_trends(rows)

    def details(self, request: HttpRequest, row: DeadLetterGroup) -> dict[str, Any]:
        return group_page.of(request, row)

    @dialog_action(url_path="mute", permissions=["operate"], dialog=MUTE)
    def mute(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._decide(request, form, object_id, GroupState.MUTED)

    @dialog_action(url_path="resolve", permissions=["operate"], dialog=RESOLVE)
    def resolve(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._decide(request, form, object_id, GroupState.RESOLVED)

    @dialog_action(url_path="reopen", permissions=["operate"], dialog=REOPEN)
    def reopen(self, request: HttpRequest, form: ReasonForm, object_id: str) -> HttpResponse:
        return self._decide(request, form, object_id, GroupState.OPEN)

    @dialog_action(url_path="replay-all", permissions=["lead"], dialog=REPLAY)
    def replay_all(self, request: HttpRequest, form: ReplayGroupForm, object_id: str) -> HttpResponse:
        return self._begin(request, form, object_id, "replay", form.terms())

    @dialog_action(url_path="discard-all", permissions=["lead"], dialog=DISCARD)
    def discard_all(self, request: HttpRequest, form: GroupForm, object_id: str) -> HttpResponse:
        return self._begin(request, form, object_id, "discard", bulk.Terms(rate=bulk.AT_ONCE))

    def _decide(self, request: HttpRequest, form: ReasonForm, object_id: str, state: GroupState) -> HttpResponse:
        group, why = self.row(request, object_id), form.cleaned_data["reason"]

        def verb() -> None:
            dead_letters.decide(group.pk, state, by=actor(request), reason=why)

        return parts.carry_out(request, verb, f"The group is {state.value}.", self.address(group.pk))

    def _begin(
        self, request: HttpRequest, form: GroupForm, object_id: str, verb: str, terms: bulk.Terms
    ) -> HttpResponse:
        group, why = self.row(request, object_id), form.cleaned_data["reason"]

        def begin() -> str:
            operation = bulk.begin(verb, group.pk, terms, by=actor(request), reason=why)
            return reverse("admin:engines_bulkoperation_change", args=[operation.pk])

        return parts.carry_out(request, begin, "Started. This page shows its progress.", self.address(group.pk))

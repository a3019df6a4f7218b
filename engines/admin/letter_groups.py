"""Groups of dead letters: one line for each kind of failure, and what can be decided about all of them at once."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html

from engines import dead_letters
from engines.admin import links, parts
from engines.admin.dead_letters import SourceFilter
from engines.admin.forms import GroupForm, ReplayGroupForm
from engines.admin.parts import Act, CategoryFilter, ListedPage
from engines.core import allowed_actions
from engines.core.states import GroupState
from engines.dead_letters import bulk, bulk_replays
from engines.models import DeadLetter, DeadLetterGroup, DeadLetterHour
from engines.reads import letter_groups as reads
from engines.reads.dead_letters import find_groups, list_groups
from ergon_site.access import keyset
from ergon_site.access.console import drawing, states
from ergon_site.access.console.buttons import bar
from ergon_site.access.console.cells import anchor, column, moment, tag, two_lines, unbroken, with_note, words
from ergon_site.access.console.dialogs import dialog_action
from ergon_site.access.console.lists import choice
from ergon_site.access.console.pages import actor, registered
from ergon_site.access.console.palette import MOST, Deed, Found
from ergon_site.access.console.selection import EXPORT, BulkAct
from ergon_site.access.core.roles import Right
from ergon_site.access.database.clock import page_time
from ergon_site.access.keyset import KeysetQuery

HOURS = 24
SHOWN = 50
BULK = (Act("Replay all", "replay_all", Right.LEAD), Act("Discard all", "discard_all", Right.LEAD))
MUTE = Act("Mute", "mute", Right.OPERATE)
RESOLVE = Act("Resolve", "resolve", Right.OPERATE)
REOPEN = Act("Reopen", "reopen", Right.OPERATE)
DECISIONS = {MUTE: GroupState.MUTED, RESOLVE: GroupState.RESOLVED, REOPEN: GroupState.OPEN}
SELECTED = (
    BulkAct(title="Replay", verb="replay", past="replayed", meaning="The open dead letters of these groups run again."),
    BulkAct(
        title="Discard",
        verb="discard",
        past="discarded",
        meaning="The open dead letters of these groups are closed for good.",
    ),
    BulkAct(
        title="Mute",
        verb="mute",
        past="muted",
        meaning="They no longer need attention; new failures are still recorded.",
    ),
    BulkAct(
        title="Resolve",
        verb="resolve",
        past="resolved",
        meaning="The cause is fixed. A group reopens with its next failure.",
    ),
    BulkAct(title="Reopen", verb="reopen", past="reopened", meaning="They need attention again."),
    EXPORT,
)
REPLAY = {"title": "Replay all dead letters of the group", "form_class": ReplayGroupForm, "submit": "Replay all"}
DISCARD = {
    "title": "Discard all dead letters of the group",
    "form_class": GroupForm,
    "submit": "Discard all",
    "keep": "Keep them",
}


def with_trends(groups: list[DeadLetterGroup]) -> list[Any]:
    """The groups with what came in each of the last hours, by one query for all of them."""
    this_hour = page_time().replace(minute=0, second=0, microsecond=0)
    hours = [this_hour - timedelta(hours=HOURS - 1 - place) for place in range(HOURS)]
    rows = DeadLetterHour.objects.filter(group__in=[group.pk for group in groups], hour__gte=hours[0])
    counts = {(row.group_id, row.hour): row.count for row in rows}
    for group in groups:
        group.trend = [counts.get((group.pk, hour), 0) for hour in hours]  # type: ignore[attr-defined]
    return groups


def sparkline(trend: Sequence[int]) -> str:
    label = (
        f"{sum(trend):,} in the last {HOURS} hours, at most {max(trend):,} in one"
        if any(trend)
        else "none in the last 24 hours"
    )
    return render_to_string("console/sparkline.html", {"columns": drawing.columns(trend), "label": label})


def _outcomes(outcomes: reads.Outcomes) -> str:
    named = {
        "succeeded": outcomes.succeeded,
        "failed again": outcomes.failed,
        "still running": outcomes.running,
        "no longer kept": outcomes.unknown,
    }
    return ", ".join(f"{count:,} {word}" for word, count in named.items() if count)


def _singles(tried: reads.Tried) -> str:
    """What was decided about single members, in one sentence."""
    replays = sum(tried.outcomes)
    told = [f"{replays:,} replayed one by one: {_outcomes(tried.outcomes)}"] if replays else []
    told += [f"{tried.discarded:,} discarded"] if tried.discarded else []
    window = f", of the last {reads.DECISIONS} decisions" if tried.is_capped else ""
    return f"{'; '.join(told)}{window}." if told else ""


def _newest(group: DeadLetterGroup, letters: list[DeadLetter]) -> dict[str, Any]:
    """What the newest members tell: a traceback, a payload, in what payloads differ, and what they ran under."""
    sample, affected = reads.sample_and_affected(group, letters)
    newest = reads.newest_traceback(letters)
    return {
        "newest": newest,
        "frames": parts.frames(newest.traceback) if newest else [],
        "traceback_title": parts.details_title(None, newest.error_type, newest.traceback) if newest else "",
        "sample": sample,
        "payload": parts.json_part(sample.newest),
        "affected": affected,
    }


def _decide(act: Act, title: str, description: str) -> Any:
    state = DECISIONS[act]
    return act.ask(
        title,
        description,
        lambda row, **why: dead_letters.decide(row.pk, state, **why),
        f"The group is {states.label(state, 'group')}.",
    )


@registered(DeadLetterGroup)
class GroupsPage(ListedPage):
    detail_template = "console/letter_group.html"
    bulk_kind, bulk_acts = "dead_letter_group", SELECTED
    actions_detail: ClassVar = ("mute", "resolve", "reopen", "replay_all", "discard_all")
    list_display: ClassVar = ("error", "state_word", "where", "kind", "open_of", "seen", "day")
    list_display_links: ClassVar = ("error",)
    list_filter: ClassVar = [choice("state", states.choices("group")), SourceFilter, CategoryFilter]
    search_names = ("error",)
    replay_path, replay_right = "replay-all/", Right.LEAD
    deeds = (Deed("Replay all of", "replay_all", Right.LEAD, "open"),)
    search_help_text = "Part of an error, a message or a source"
    list_before_template = "console/letters_link.html"
    empty_text = "Transactions that fail for good are grouped here by kind of failure."
    export_fields: ClassVar = {
        **{name: name for name in ("id", "source", "step", "category", "error_type", "message", "state")},
        **{name: name for name in ("open_count", "total", "first_seen_at", "last_seen_at", "decided_by")},
    }

    error = column("error", lambda group: words(str(group)))
    state_word = column("state", lambda group: tag(group.state, "group"))
    where = column("source and step", lambda group: two_lines(group.source, group.step))
    kind = column("category", lambda group: unbroken(group.category))
    seen = column(
        "last seen",
        lambda group: with_note(
            moment(group.last_seen_at), unbroken(format_html("first {}", moment(group.first_seen_at)))
        ),
    )
    open_of = column(
        "unresolved",
        lambda group: anchor(links.rows("deadletter", group=group.pk), f"{group.open_count:,} of {group.total:,}"),
    )
    day = column("last 24 h", lambda group: sparkline(group.trend))

    def keyset_query(self, request: HttpRequest, wanted: Mapping[str, str]) -> KeysetQuery:
        return list_groups(wanted)

    def find(self, request: HttpRequest, text: str) -> Iterator[Found]:
        for group in find_groups(text, MOST):
            mark, note = "open" if group.open_count else "", f"{group.source}, {states.label(group.state, 'group')}"
            yield Found(str(group), note, self.address(group.pk), group.pk, mark)

    def decorate(self, request: HttpRequest, rows: list[DeadLetterGroup]) -> list[DeadLetterGroup]:
        return with_trends(rows)

    def details(self, request: HttpRequest, row: DeadLetterGroup) -> dict[str, Any]:
        at = request.GET.get("at", "")
        found = keyset.paginate(reads.members(row), size=SHOWN, at=at)
        tried = reads.tried_before(row)
        operation = tried.operations[0] if tried.operations else None
        busy = operation.state if operation and operation.state in {"running", "paused"} else None
        acting, state = allowed_actions.of_acting_on_all(row.open_count, busy), GroupState(row.state)
        deciding = {act: allowed_actions.of_deciding(state, wanted) for act, wanted in DECISIONS.items()}
        refusals = {**dict.fromkeys(BULK, acting), **deciding}
        return {
            "group": row,
            "spark": sparkline(with_trends([row])[0].trend),
            "members": found,
            "operations": [
                {"row": one, "told": bulk_replays.tally(one, one.replays)}
                for one in bulk_replays.with_figures(tried.operations)
            ],
            "singles": _singles(tried),
            "replays": [{"letter": letter, "state": word} for letter, word in tried.replays],
            "bar": bar(*(act.button(request, row, why) for act, why in refusals.items())),
            # Further pages of members are about older ones.
            **(_newest(row, found.rows) if found.rows and not found.previous else {}),
        }

    mute = _decide(MUTE, "Mute the group", "It no longer needs attention; new failures are still recorded here.")
    resolve = _decide(
        RESOLVE, "Resolve the group", "The cause is fixed. If the same failure occurs again, the group reopens."
    )
    reopen = _decide(REOPEN, "Reopen the group", "It needs attention again.")

    @dialog_action(url_path="replay-all", permissions=["lead"], dialog=REPLAY)
    def replay_all(self, request: HttpRequest, form: ReplayGroupForm, object_id: str) -> HttpResponse:
        return self._begin(request, form, object_id, "replay", form.terms())

    @dialog_action(url_path="discard-all", permissions=["lead"], dialog=DISCARD)
    def discard_all(self, request: HttpRequest, form: GroupForm, object_id: str) -> HttpResponse:
        return self._begin(request, form, object_id, "discard", bulk.Terms(rate=bulk.AT_ONCE))

    def _begin(
        self, request: HttpRequest, form: GroupForm, object_id: str, verb: str, terms: bulk.Terms
    ) -> HttpResponse:
        group, why = self.row(request, object_id), form.cleaned_data["reason"]

        def begin() -> str:
            operation = bulk.begin(verb, group.pk, terms, by=actor(request), reason=why)
            return reverse("ergon:engines_bulkoperation_change", args=[operation.pk])

        return self.carry_out(request, begin, "Started. This page shows its progress.", group.pk)

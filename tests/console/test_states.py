"""States have one label and one colour each, from one table, on every page."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.test import Client

from engines import pipelines
from engines.core.states import AttemptOutcome, GroupState, LetterState, State, WorkerState
from engines.models import BulkItem, BulkOperation
from engines.pipelines import Plan
from ergon_site import TEMPLATES
from ergon_site.access.console import states
from ergon_site.access.console.states import STATES, Colour
from facts.core.artifacts import Damage
from facts.core.gates import Gate
from providers.core.breaker import BreakerState
from providers.core.exchange import Outcome
from providers.models.calls import TaskState
from providers.reads.lists import OFFERED
from tests.console import records

ROOT = Path(__file__).parents[2]
# A state's colour that is written out, or chosen with a condition: it belongs into the table.
WRITTEN = re.compile(r"ergon-(?:tag|says)-(?!\{\{ [\w.]+(?:\|colour:|\ \}))|ergon-tag(?![-\w])(?! ergon-tag-)")
WORDS: dict[str, Sequence[str]] = {
    "transaction": [state.word for state in State],
    "attempt": [outcome.name.lower() for outcome in AttemptOutcome],
    "dead letter": list(LetterState),
    "group": list(GroupState),
    "bulk operation": [state for state, _ in BulkOperation.STATES],
    "bulk item": [result for result, _ in BulkItem._meta.get_field("result").choices or ()],
    "worker": list(WorkerState),
    "executor": ["backing off", "failing", "working", "idle", "not started"],
    "breaker": [*BreakerState, *(f"account_{state}" for state in BreakerState if state is not BreakerState.CLOSED)],
    "provider attempt": list(Outcome),
    "task execution": list(TaskState),
    "outbox letter": OFFERED["published"],
    "boundary": list(Gate),
    "artifact": list(Damage),
}


@pytest.mark.parametrize("kind", WORDS)
def test_every_state_of_a_row_has_a_label_and_a_colour(kind: str) -> None:
    assert set(WORDS[kind]) <= set(STATES[kind])


def test_a_label_has_one_colour_and_only_breakers_are_open() -> None:
    colours: dict[str, set[Colour]] = {}
    for kind, table in STATES.items():
        assert kind == "breaker" or "open" not in {shown.label for shown in table.values()}
        for shown in table.values():
            colours.setdefault(shown.label, set()).add(shown.colour)
    assert {label: found for label, found in colours.items() if len(found) > 1} == {}


def test_a_state_of_a_newer_release_is_shown_as_it_is() -> None:
    assert states.tag("on_hold<b>", "pipeline") == '<span class="ergon-tag ergon-tag-plain">on hold&lt;b&gt;</span>'


def test_no_template_and_no_page_colours_a_state_by_itself() -> None:
    pages = [*TEMPLATES.rglob("*.html"), *ROOT.glob("*/admin/*.py"), *ROOT.glob("ergon_site/**/*.py")]
    own = ROOT / "ergon_site/access/console/states.py"
    found = {path.name: WRITTEN.findall(path.read_text()) for path in pages if path != own}
    assert {name: bad for name, bad in found.items() if bad} == {}


def test_the_stylesheet_has_every_colour_in_light_and_dark() -> None:
    rules = (ROOT / "ergon_site/access/static/ergon/console.css").read_text()
    for colour in set(Colour) - {Colour.PLAIN}:
        for name in (f"ergon-tag-{colour}", f"ergon-says-{colour}"):
            assert f"\n.{name} {{" in rules
            assert f"\n.dark .{name} {{" in rules


@pytest.mark.django_db
def test_lists_show_labels_and_addresses_keep_the_words_of_rows(browse: Client) -> None:
    records.fail(pipelines.create("invoices", Plan(task="invoices.import"), by="tests"), 1)
    shown = records.read(browse, "/admin/engines/deadletter/?state=open")
    assert '<span class="ergon-tag ergon-tag-bad">unresolved</span>' in shown
    assert '<option value="open" selected>Unresolved</option>' in shown
    operations = records.read(browse, "/admin/engines/bulkoperation/")
    assert re.findall(r'<option value="(\w+)"', operations) == [state for state, _ in BulkOperation.STATES]

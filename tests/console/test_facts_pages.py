"""The pages of boundaries, consumers, zones, facts and artifacts: what they show, what their buttons do, who may."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from ergon_site.access.models import AuditEntry
from facts import ledger, provisioning, retiring
from facts.models import Artifact, Boundary, Consumer, Fact, SkippedFact, Zone
from tests.console import records
from tests.factories import ArtifactFactory, FactFactory, ForwardedFactFactory
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary

pytestmark = pytest.mark.django_db

QUERY_BUDGET = 12
FACTS = "/admin/facts/"
DIALOG = {"_form_submitted": "on", "reason": "the line moves"}
LONG = "x" * 230


@pytest.fixture
def boundary() -> Boundary:
    return make_boundary()


def page(row: Any, last: str = "change") -> str:
    return f"{FACTS}{row._meta.model_name}/{row.pk}/{last}/"


def fact_page(boundary: Boundary, offset: int, buffer: str = "fact") -> str:
    return f"{FACTS}{buffer}/{boundary.pk}-{offset}/change/"


def store(**changes: Any) -> Artifact:
    return ArtifactFactory.create(
        **{"key": "order 1/label.pdf", "size": 2048576, "created_by": "client:press"} | changes
    )


def hand_over(boundary: Boundary, upto: int) -> None:
    """As the handoff leaves it."""
    copied = ("boundary", "offset", "message_id", "subject", "predicate", "correlation_id", "causation_id")
    for fact in Fact.objects.filter(boundary=boundary, offset__lte=upto):
        ForwardedFactFactory.create(**{name: getattr(fact, name) for name in (*copied, "content", "digest")})
    Boundary.objects.filter(pk=boundary.pk).update(frontier=upto, handed_over_at=Now())


def make_lonely() -> Boundary:
    """A boundary whose one fact has no relatives."""
    boundary = make_boundary(OFFICE, "Harbour")
    ledger.append(draft("alone", from_zone=OFFICE, to_zone="Harbour"))
    return boundary


@pytest.mark.parametrize("buffer", ["fact", "forwardedfact"])
def test_every_part_of_a_breadcrumb_leads_somewhere(browse: Client, boundary: Boundary, buffer: str) -> None:
    ledger.append(draft())
    hand_over(boundary, 0)
    for address, last in (
        (fact_page(boundary, 0, buffer), fact_page(boundary, 0, buffer)),
        (page(boundary), page(boundary)),
        (page(boundary, "retire"), page(boundary)),
    ):
        title = records.read(browse, address).split("<h1")[1].split("</h1>")[0]
        links = re.findall(r'<a href="([^"]*)"', title)
        assert (len(links), links[-1]) == (3, last)
        assert [browse.get(link).status_code for link in links] == [200, 200, 200]


def test_empty_lists_say_what_would_fill_them(browse: Client) -> None:
    assert "local" in records.read(browse, f"{FACTS}zone/"), "this deployment is a zone by itself"
    Zone.objects.all().delete()
    for name, words in {
        "boundary": "create the zones first",
        "consumer": "before its first fetch",
        "zone": "Create two zones",
        "fact": "POST /api/v1/facts",
        "forwardedfact": "The command forward",
        "artifact": "PUT /api/v1/objects",
    }.items():
        text = records.read(browse, f"{FACTS}{name}/")
        assert " yet</h2>" in text
        assert words in text
    assert "create a boundary first" in records.read(browse, f"{FACTS}consumer/add/")


def test_a_boundary_tells_gate_backlog_frontier_and_fill(browse: Client, boundary: Boundary) -> None:
    provisioning.limit(PLANT, OFFICE, provisioning.Allowance(row_ceiling=10), by="ada", reason="small disk")
    for number in range(9):
        ledger.append(draft(number))
    hand_over(boundary, 1)
    listed, shown = records.read(browse, f"{FACTS}boundary/"), records.read(browse, page(boundary))
    for text in (listed, shown):
        assert "Plant A → Enterprise" in text
        assert "90.0 %" in text
        assert "ergon-meter-warning" in text
        assert "normal" in text
    assert 'data-live="' in shown
    assert "9 of 10" in shown
    assert "No consumers read this boundary yet" in shown
    live = records.read(browse, page(boundary, "live"))
    assert ">7</a>" in live
    assert "<html" not in live


def test_the_colour_of_a_fill_changes_at_the_warning_line(browse: Client, boundary: Boundary) -> None:
    for ceiling, kind in ((11, "good"), (10, "warning"), (8, "bad")):
        provisioning.limit(PLANT, OFFICE, provisioning.Allowance(row_ceiling=ceiling), by="ada", reason="")
        Boundary.objects.update(next_offset=8)
        assert f"ergon-meter-{kind}" in records.read(browse, f"{FACTS}boundary/")


def test_a_gate_is_closed_and_opened_with_a_reason(browse: Client, boundary: Boundary) -> None:
    assert "Both sides keep working" in records.read(browse, page(boundary, "close"))
    browse.post(page(boundary, "close"), {**DIALOG, "reason": ""})
    assert Boundary.objects.get().gate == "normal"
    assert browse.post(page(boundary, "close"), DIALOG).headers["HX-Redirect"] == page(boundary)
    shown = records.read(browse, page(boundary))
    assert "by ada" in shown
    assert "the line moves" in shown
    assert page(boundary, "open") in shown
    assert page(boundary, "close") not in shown
    browse.post(page(boundary, "open"), {**DIALOG, "reason": "it has moved"})
    assert Boundary.objects.get().gate == "normal"
    entries = AuditEntry.objects.filter(action__startswith="boundary.", actor="ada").order_by("id")
    assert [(one.action, one.reason) for one in entries] == [
        ("boundary.close", "the line moves"),
        ("boundary.open", "it has moved"),
    ]


def test_an_alarm_is_told_and_opening_the_gate_says_that_somebody_looked(browse: Client, boundary: Boundary) -> None:
    Boundary.objects.update(alarm="offset 7 is already there with other bytes")
    assert "offset 7 is already there" in records.read(browse, page(boundary))
    browse.post(page(boundary, "open"), DIALOG)
    assert Boundary.objects.get().alarm == ""


def hidden(dialog: str) -> dict[str, str]:
    """What a dialog keeps for when it is sent."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\d+)"', dialog))


def test_an_alarm_is_explained_and_an_administrator_skips_what_it_is_about(browse: Client) -> None:
    boundary = make_boundary(source_url="https://peer.example", source_token_file="plant")
    Boundary.objects.update(alarm="the message 'a' at offset 7 has arrived", frontier=6, alarm_offset=7, alarm_last=7)
    shown = records.read(browse, page(boundary))
    assert "an administrator skips offset 7" in shown
    assert "boundary skip &#x27;Plant A&#x27; Enterprise 7 --reason" in shown
    assert "Skip offset 7" in shown
    dialog = records.read(browse, page(boundary, "skip"))
    assert "Skips offset 7." in dialog
    assert "This cannot be undone" in dialog
    asked = {**hidden(dialog), **DIALOG}
    assert "Skips offset 7." in browse.post(page(boundary, "skip"), {**asked, "reason": ""}).content.decode()
    assert Boundary.objects.get().alarm
    assert browse.post(page(boundary, "skip"), asked).headers["HX-Redirect"] == page(boundary)
    row = Boundary.objects.get()
    assert (row.alarm, row.frontier) == ("", 7)
    shown = records.read(browse, page(boundary))
    assert "Skipped offset 7: consumers get a notice in its place." in shown
    assert "Skipped offsets" in shown
    assert fact_page(boundary, 7, "forwardedfact") in shown
    assert "was_skipped" in records.read(browse, fact_page(boundary, 7, "forwardedfact"))
    browse.post(page(boundary, "skip"), asked)
    assert "the boundary has no alarm" in records.read(browse, page(boundary))
    assert "There is nothing to skip" in browse.post(page(boundary, "skip"), DIALOG).content.decode()
    assert AuditEntry.objects.get(action="boundary.skip").reason == "the line moves"


def test_a_dialog_skips_the_offsets_that_it_has_named_and_no_others(browse: Client) -> None:
    boundary = make_boundary(source_url="https://peer.example", source_token_file="plant")
    Boundary.objects.update(alarm="the message 'a' at offset 7 has arrived", frontier=6, alarm_offset=7, alarm_last=7)
    asked = {**hidden(records.read(browse, page(boundary, "skip"))), **DIALOG}
    browse.post(page(boundary, "skip"), asked)
    # Somebody else has the same dialog open while the next facts raise another alarm.
    Boundary.objects.update(alarm="offsets 9 to 2,000 are gone", frontier=8, alarm_offset=9, alarm_last=2000)
    browse.post(page(boundary, "skip"), asked)
    assert list(SkippedFact.objects.values_list("offset", flat=True)) == [7]
    assert "The alarm names offset 9, not 7" in records.read(browse, page(boundary))
    dialog = records.read(browse, page(boundary, "skip"))
    assert "Skips the offsets 9 to 1,008." in dialog
    Boundary.objects.update(alarm_last=20)
    browse.post(page(boundary, "skip"), {**hidden(dialog), **DIALOG})
    assert SkippedFact.objects.count() == 1
    assert "The alarm names the offsets 9 to 20" in records.read(browse, page(boundary))


def test_an_alarm_without_an_offset_says_that_there_is_nothing_to_skip(browse: Client, boundary: Boundary) -> None:
    Boundary.objects.update(alarm="the peer&#x27;s cursor is 'x'")
    shown = records.read(browse, page(boundary))
    assert "there is nothing to skip" in shown
    assert page(boundary, "skip") not in shown


def test_consumers_boundaries_and_zones_are_retired_in_this_order(browse: Client, boundary: Boundary) -> None:
    consumer = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    zone = boundary.to_zone
    refusals: list[tuple[Any, str]] = [(zone, "boundaries still lead"), (boundary, "consumers still read")]
    for row, words in refusals:
        browse.post(page(row, "retire"), DIALOG)
        assert words in records.read(browse, page(row)).lower()
    for row in (consumer, boundary, zone):
        assert page(row, "retire") in records.read(browse, page(row))
        browse.post(page(row, "retire"), DIALOG)
        row.refresh_from_db()
        assert (row.retired_by, row.retired_reason) == ("ada", "the line moves")
        shown = records.read(browse, page(row))
        assert "<strong>Retired</strong> by ada" in shown
        assert page(row, "retire") not in shown
        assert "retired" in records.read(browse, f"{FACTS}{row._meta.model_name}/")
    assert OFFICE not in records.read(browse, f"{FACTS}boundary/add/")
    assert page(boundary) in records.read(browse, page(zone))
    assert "Nothing needs attention." in records.read(browse, "/admin/")
    actions = AuditEntry.objects.filter(action__endswith=".retire", actor="ada").order_by("id")
    assert [one.action for one in actions] == ["consumer.retire", "boundary.retire", "zone.retire"]


@pytest.mark.parametrize("verb", ["open", "close"])
def test_the_gate_of_a_boundary_that_was_retired_meanwhile_stays_as_it_is(
    browse: Client, boundary: Boundary, verb: str
) -> None:
    retiring.retire_boundary(*boundary.zones, by="bob", reason="the line moves")
    browse.post(page(boundary, verb), DIALOG)
    assert "retired" in next(iter(get_messages(browse.get(page(boundary)).wsgi_request))).message
    assert not AuditEntry.objects.filter(action=f"boundary.{verb}").exists()


def test_a_consumer_that_holds_back_truncation_is_a_concern_with_a_way_out(browse: Client, boundary: Boundary) -> None:
    consumer = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    Boundary.objects.update(next_offset=1)
    FactFactory.create(boundary=boundary, offset=0, written_at=Now() - timedelta(days=33))
    assert "holds back truncation: facts are 3 days past their retention" in records.read(browse, "/admin/")
    shown = records.read(browse, page(consumer))
    assert "Holding back truncation" in shown
    assert page(consumer, "retire") in shown


def test_a_peer_that_does_not_answer_is_told_of_on_the_page(browse: Client) -> None:
    boundary = make_boundary(source_url="https://peer.example", source_token_file="plant")
    Boundary.objects.update(heard_at=Now() - timedelta(minutes=9))
    assert "The peer has not responded for 9 min." in records.read(browse, page(boundary))


def test_ceilings_and_retention_are_changed_with_a_reason(browse: Client, boundary: Boundary) -> None:
    form = {"row_ceiling": "1000", "byte_ceiling": "", "keep_days": "7", "reason": "small disk"}
    assert browse.post(page(boundary, "limit"), form).status_code == 302
    row = Boundary.objects.get()
    assert (row.row_ceiling, row.byte_ceiling, row.keep_days) == (1000, None, 7)
    entry = AuditEntry.objects.get(action="boundary.limit")
    assert (entry.before, entry.reason) == (
        {"row_ceiling": None, "byte_ceiling": None, "keep_days": 30, "dedupe_days": None},
        "small disk",
    )
    for wrong in ({"row_ceiling": "0"}, {"keep_days": ""}, {"keep_days": "99999"}, {"reason": ""}):
        assert "Not saved. Fix:" in browse.post(page(boundary, "limit"), form | wrong).content.decode()
    assert AuditEntry.objects.filter(action="boundary.limit").count() == 1


@pytest.mark.once
def test_zones_boundaries_and_consumers_are_made_here(browse: Client) -> None:
    for name in (PLANT, OFFICE):
        browse.post(f"{FACTS}zone/add/", {"name": name, "reason": "new site"})
    form = {"from_zone": PLANT, "to_zone": OFFICE, "keep_days": "30", "reason": "new site"}
    assert browse.post(f"{FACTS}boundary/add/", form).status_code == 302
    boundary = Boundary.objects.get()
    ledger.append_many([draft(number) for number in range(5)])
    for name, start, offset, cursor in (
        ("a", "earliest", "", -1),
        ("b", "latest", "", 4),
        ("c", "offset", "3", 2),
    ):
        sent = {"name": name, "boundary": boundary.pk, "start": start, "offset": offset, "reason": "erp"}
        assert browse.post(f"{FACTS}consumer/add/", sent).status_code == 302
        assert Consumer.objects.get(name=name).cursor == cursor
    assert AuditEntry.objects.filter(action="consumer.create", actor="ada", reason="erp").count() == 3
    assert "Plant A → Enterprise" in records.read(browse, page(Zone.objects.get(name=PLANT)))


@pytest.mark.once
@pytest.mark.parametrize(
    ("form", "change", "words"),
    [
        ("zone", {"name": " Plant A"}, "no blanks around it"),
        ("zone", {"name": PLANT}, "already"),
        ("boundary", {"to_zone": PLANT}, "needs two different zones"),
        ("boundary", {"to_zone": ""}, "This field is required."),
        ("boundary", {}, "already"),
        ("boundary", {"from_zone": OFFICE, "to_zone": PLANT, "source_url": "https://peer.example"}, "token"),
        ("consumer", {"start": "offset"}, "Enter the first offset"),
        ("consumer", {"start": "offset", "offset": "7"}, "there is no offset 7 yet"),
        ("consumer", {"name": "taken"}, "already"),
    ],
)
def test_what_the_verbs_refuse_is_told_by_the_form(
    browse: Client, boundary: Boundary, form: str, change: dict[str, str], words: str
) -> None:
    provisioning.create_consumer("taken", PLANT, OFFICE, by="tests")
    sent = {"from_zone": PLANT, "to_zone": OFFICE, "keep_days": "30", "boundary": boundary.pk, "start": "earliest"}
    answer = browse.post(f"{FACTS}{form}/add/", {"name": "erp", "reason": "new", **sent, **change})
    assert answer.status_code == 200
    assert words.lower() in answer.content.decode().lower()
    assert set(Zone.objects.values_list("name", flat=True)) == {PLANT, OFFICE, "local"}
    assert (Boundary.objects.count(), Consumer.objects.count()) == (1, 1)


def test_a_consumer_tells_its_cursor_its_backlog_and_what_comes_next(browse: Client, boundary: Boundary) -> None:
    consumer = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    assert "Up to date." in records.read(browse, page(consumer))
    assert "no facts yet" in records.read(browse, f"{FACTS}consumer/")
    ledger.append_many([draft(number) for number in range(5)])
    ledger.fetch("erp")
    ledger.confirm("erp", 1)
    shown = records.read(browse, page(consumer))
    assert "3 facts left" in shown
    assert fact_page(boundary, 2) in shown
    listed = records.read(browse, f"{FACTS}consumer/")
    assert "erp" in listed
    assert "of 4" in listed
    assert "never" not in listed
    assert "erp" in records.read(browse, page(boundary))
    assert "erp" in records.read(browse, f"{FACTS}consumer/?boundary={boundary.pk}")
    assert "No results" in records.read(browse, f"{FACTS}consumer/?boundary=0")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?q=order-3-released", [3]),
        ("?q=work_order:WO-4", [4]),
        ("?q=order:1", [7, 5, 3, 1]),
        ("?message=order-3-released", [3]),
        ("?subject=work_order:WO-4", [4]),
        ("?correlation=order:1", [7, 5, 3, 1]),
        ("?correlation=order:1&subject=work_order:WO-5", [5]),
        ("?q=order-3", []),
        ("?q=%25", []),
        ("", [7, 6, 5, 4, 3, 2, 1, 0]),
    ],
)
def test_facts_are_found_by_message_id_subject_and_correlation(
    browse: Client, boundary: Boundary, query: str, found: list[int]
) -> None:
    for number in range(8):
        ledger.append(draft(number, **({"correlation_id": "order:1"} if number % 2 else {})))
    hand_over(boundary, 7)
    for buffer in ("fact", "forwardedfact"):
        rows = records.exported(browse, f"{FACTS}{buffer}/export.json{query}")
        assert [row["offset"] for row in rows] == found
        assert ("No results" in records.read(browse, f"{FACTS}{buffer}/{query}")) == (not found)
    assert browse.get(f"{FACTS}fact/?boundary=999").status_code in {200, 302}


def test_a_search_that_could_mean_two_things_says_so(browse: Client, boundary: Boundary) -> None:
    ledger.append(draft(1, message_id="order:1"))
    ledger.append(draft(2, correlation_id="order:1"))
    text = records.read(browse, f"{FACTS}fact/?q=order:1")
    assert "found as a message id; it is also a correlation id: use the filters" in text


def test_the_page_of_a_fact_shows_all_of_it(browse: Client, boundary: Boundary) -> None:
    artifact = store()
    told = {name: getattr(artifact, name) for name in ("bucket", "key", "digest", "size")}
    sent = draft(
        1,
        message_id="a/b c?ü",
        correlation_id="order:1",
        labels={"priority": "high"},
        object_media_type="application/json",
        object_json={**told, "note": "<script>alert(1)</script>"},
    )
    ledger.append(sent)
    shown = records.read(browse, fact_page(boundary, 0))
    fact = Fact.objects.get()
    for words in ("a/b c?ü", fact.digest, "priority=high", "was_released", "2025-03-06 08:10:00", "order:1"):
        assert words in shown, words
    assert "<script>alert(1)" not in shown
    assert page(artifact) in shown
    assert "in the store buffer" in shown
    assert fact_page(boundary, 0) in records.read(browse, page(artifact))


def test_lineage_leads_back_and_forth_across_buffers(browse: Client, boundary: Boundary) -> None:
    back = make_boundary(OFFICE, PLANT)
    ledger.append(draft(1, message_id="order"))
    ledger.append(draft(2, message_id="work", causation_id="order", from_zone=OFFICE, to_zone=PLANT))
    ledger.append(draft(3, message_id="report", causation_id="work", correlation_id="c"))
    ledger.append(draft(4, message_id="invoice", correlation_id="c"))
    hand_over(boundary, 2)
    shown = records.read(browse, fact_page(back, 0))
    assert "Causes" in shown
    assert fact_page(boundary, 0) in shown
    assert "Effects" in shown
    assert fact_page(boundary, 1) in shown
    report = records.read(browse, fact_page(boundary, 1))
    assert "Same correlation id" in report
    assert "invoice" in report
    assert fact_page(boundary, 1, "forwardedfact") in report
    assert "in the store buffer</a>" in records.read(browse, fact_page(boundary, 1, "forwardedfact"))
    assert "No causes or effects" in records.read(browse, fact_page(make_lonely(), 0))


def test_causes_that_lead_in_a_circle_or_nowhere_end(browse: Client, boundary: Boundary) -> None:
    ledger.append(draft(1, message_id="a", causation_id="b"))
    ledger.append(draft(2, message_id="b", causation_id="a"))
    ledger.append(draft(3, message_id="c", causation_id="gone"))
    for number in range(4, 10):
        ledger.append(draft(number, message_id=f"m{number}", causation_id=f"m{number - 1}"))
    assert browse.get(fact_page(boundary, 0)).status_code == 200
    assert "gone, is not stored here" in records.read(browse, fact_page(boundary, 2))
    assert "The chain continues on the page of the last fact" in records.read(browse, fact_page(boundary, 8))


def test_artifacts_tell_their_references_and_orphans_are_listed(browse: Client, boundary: Boundary) -> None:
    lonely, used = store(key="lonely"), store(key="used")
    told = {name: getattr(used, name) for name in ("bucket", "key", "digest", "size")}
    for number in range(60):
        ledger.append(draft(number, object_json=told))
    rows = records.exported(browse, f"{FACTS}artifact/export.json?kept=orphan")
    assert [row["key"] for row in rows] == ["lonely"]
    assert len(records.exported(browse, f"{FACTS}artifact/export.json?bucket=batch-files")) == 2
    assert len(records.exported(browse, f"{FACTS}artifact/export.json?q=batch-files/used")) == 1
    assert records.exported(browse, f"{FACTS}artifact/export.json?q=used") == []
    assert "is an orphan" in records.read(browse, page(lonely))
    shown = records.read(browse, page(used))
    assert shown.count("of Plant A → Enterprise") == 50
    assert 'rel="next"' in shown


@pytest.mark.once
def test_nothing_can_be_changed_or_deleted_but_through_the_verbs(browse: Client, boundary: Boundary) -> None:
    ledger.append(draft(1))
    rows = {"fact": f"{boundary.pk}-0", "boundary": boundary.pk, "zone": Zone.objects.all()[0].pk}
    rows["consumer"] = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests").pk
    rows["artifact"] = store().pk
    for name, key in rows.items():
        for last in ("delete", "change"):
            assert browse.post(f"{FACTS}{name}/{key}/{last}/", {"post": "yes"}).status_code == 403, (name, last)
        browse.post(f"{FACTS}{name}/", {"action": "delete_selected", "_selected_action": key})
    for name in ("fact", "forwardedfact", "artifact"):
        assert browse.post(f"{FACTS}{name}/add/", {"message_id": "x"}).status_code == 403
    assert (Fact.objects.count(), Boundary.objects.count(), Consumer.objects.count()) == (1, 1, 1)


@pytest.mark.once
@pytest.mark.parametrize(("role", "may_operate", "may_lead"), [("viewer", 0, 0), ("operator", 1, 0), ("lead", 1, 1)])
def test_a_role_may_press_exactly_its_buttons(
    client: Client, hire: Callable[[str], User], boundary: Boundary, role: str, may_operate: int, may_lead: int
) -> None:
    client.force_login(hire(role))
    shown = records.read(client, page(boundary))
    assert (page(boundary, "close") in shown) == bool(may_operate)
    assert (page(boundary, "limit") in shown) == bool(may_lead)
    assert ("Needs the role" in shown) == (not may_lead)
    Boundary.objects.update(alarm="a", alarm_offset=0, alarm_last=0)
    assert client.post(page(boundary, "skip"), DIALOG).status_code == 403
    assert client.post(page(boundary, "retire"), {**DIALOG, "reason": ""}).status_code == (200 if may_lead else 403)
    client.post(page(boundary, "close"), DIALOG)
    assert (Boundary.objects.get().gate == "autonomous") == bool(may_operate)
    sent = {"row_ceiling": "5", "keep_days": "1", "reason": "x"}
    assert client.post(page(boundary, "limit"), sent).status_code == (302 if may_lead else 403)
    for name in ("zone", "boundary", "consumer"):
        assert client.get(f"{FACTS}{name}/add/").status_code == (200 if may_lead else 403)


@pytest.mark.once
def test_a_person_without_a_role_sees_none_of_it(client: Client, hire: Callable[[str], User]) -> None:
    client.force_login(hire("newcomer"))
    for name in ("boundary", "consumer", "zone", "fact", "forwardedfact", "artifact"):
        assert client.get(f"{FACTS}{name}/").status_code == 403


@pytest.mark.parametrize(
    "address", ["fact/x/change/", "fact/1-/change/", "fact/-1-0/change/", f"fact/{'9' * 30}-0/change/"]
)
def test_an_address_of_no_fact_is_not_found(browse: Client, address: str) -> None:
    assert browse.get(FACTS + address).status_code == 404


def test_every_page_stays_within_its_query_budget(client: Client, hire: Callable[[str], User]) -> None:
    boundaries = [make_boundary(PLANT, f"Zone {number}") for number in range(20)]
    for number, boundary in enumerate(boundaries):
        provisioning.create_consumer(f"reader {number}", PLANT, boundary.to_zone.name, by="tests")
        for step in range(6):
            cause = {"causation_id": f"{number}-{step - 1}"} if step else {}
            sent = {"message_id": f"{number}-{step}", "to_zone": boundary.to_zone.name, "correlation_id": "c"}
            ledger.append(draft(step, **sent, **cause))
    artifact = store()
    client.force_login(hire("administrator"))
    addresses = [
        *("/admin/", "/admin/live/", f"{FACTS}boundary/", page(boundaries[0]), page(boundaries[0], "live")),
        *(f"{FACTS}{name}/add/" for name in ("boundary", "consumer", "zone")),
        *(f"{FACTS}consumer/", page(Consumer.objects.all()[0]), f"{FACTS}zone/", page(boundaries[0].from_zone)),
        *(f"{FACTS}fact/{query}" for query in ("", "?q=c", "?q=none", f"?boundary={boundaries[3].pk}&correlation=c")),
        *(fact_page(boundaries[2], 5), f"{FACTS}forwardedfact/", f"{FACTS}artifact/", page(artifact)),
    ]
    costs = {}
    for address in addresses:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(address).status_code == 200, address
        costs[address] = len(queries)
    assert {address: count for address, count in costs.items() if count > QUERY_BUDGET} == {}


def test_what_is_beyond_a_warning_line_needs_a_person(browse: Client, boundary: Boundary) -> None:
    consumer = provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    assert "Nothing needs attention." in records.read(browse, "/admin/")
    Boundary.objects.update(frontier=0, next_offset=10_002)
    Consumer.objects.update(confirmed_at=Now() - timedelta(minutes=5))
    shown = records.read(browse, "/admin/")
    assert "10,001 facts not handed over yet" in shown
    assert "10,002 facts behind" in shown
    assert page(boundary) in shown
    assert page(consumer) in shown
    Boundary.objects.update(frontier=-1, next_offset=0, row_ceiling=100)
    assert "Nothing needs attention." in records.read(browse, "/admin/")
    provisioning.close_gate(PLANT, OFFICE, by="grace", reason="the line moves")
    assert "the gate is closed by grace: the line moves" in records.read(browse, "/admin/")
    Boundary.objects.update(alarm="other bytes", next_offset=80, frontier=79)
    shown = records.read(browse, "/admin/live/")
    assert "alarm: other bytes" in shown
    assert "The store buffer is 80 % full" in shown


def test_a_consumer_that_confirms_nothing_for_a_minute_needs_a_person(browse: Client, boundary: Boundary) -> None:
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    ledger.append(draft(1))
    assert "Nothing needs attention." in records.read(browse, "/admin/")
    Boundary.objects.update(next_offset=6)
    FactFactory.create(boundary=boundary, offset=5, written_at=Now() - timedelta(minutes=3))
    Consumer.objects.update(cursor=4, created_at=Now() - timedelta(minutes=9))
    assert "nothing confirmed for 3 min, 1 fact behind" in records.read(browse, "/admin/")


def test_names_and_texts_of_any_length_and_script_are_shown_as_they_are(browse: Client) -> None:
    wild = f"<b>{LONG}&"
    boundary = make_boundary(wild, OFFICE)
    ledger.append(draft(1, from_zone=wild, message_id=f"<i>{LONG}", fact={"subject": f"k:<u>{LONG}"}))
    provisioning.close_gate(wild, OFFICE, by="ada", reason=f"<s>{LONG}" * 2)
    for address in (
        f"{FACTS}boundary/",
        page(boundary),
        f"{FACTS}fact/",
        fact_page(boundary, 0),
        f"{FACTS}zone/",
        "/admin/",
    ):
        text = records.read(browse, address)
        assert LONG[:100] in text
        assert not any(f"<{mark}>{LONG[:9]}" in text for mark in "bius")
    assert "the gate is closed by ada" in text, "the dashboard cuts the name, not what is wrong"

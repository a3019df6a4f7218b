"""The pages of providers: what they show, what their buttons do, who may."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AuditEntry
from providers import (
    BulkheadPolicy,
    ProviderConnectionError,
    ProviderPolicy,
    calls,
    policies,
    registry,
)
from providers.core.exchange import Who
from providers.core.gate import moment
from providers.models import (
    CachedAnswer,
    Gate,
    OutboxLetter,
    ProviderEvent,
    ProviderExecutionMetric,
    ProviderPolicyRow,
    TaskExecution,
)
from tests.console import records
from tests.factories import TaskExecutionFactory
from tests.providers.scripted_providers import AT_ONCE, TENANT, WHO, scripted

pytestmark = pytest.mark.django_db

QUERY_BUDGET = 12
PROVIDERS = "/admin/providers/"
DIALOG = {"_form_submitted": "on", "reason": "the supplier moves"}
DOWN = ProviderConnectionError("no route")


@pytest.fixture
def gate() -> Gate:
    """One that was called, and has a quota."""
    calls.set_quota(WHO, limit=10, window=86_400, by="ada", reason="a contract")
    scripted({}, DOWN, {}).ask()
    scripted(DOWN, {}).ask()
    return Gate.objects.get()


def page(row: Any, last: str = "change") -> str:
    return f"{PROVIDERS}{row._meta.model_name}/{row.pk}/{last}/"


def trip() -> None:
    for _ in range(5):
        scripted(DOWN, retry_policy=type(AT_ONCE)(max_attempts=1)).ask()


def test_empty_lists_say_what_would_fill_them(browse: Client) -> None:
    for name, words in {
        "gate": "after their first call",
        "providerexecutionmetric": "No attempts yet",
        "providerevent": "No events yet",
        "providerpolicyrow": "class apply",
        "taskexecution": "CeleryProviderTask",
        "outboxletter": "queue.deadletter",
    }.items():
        text = records.read(browse, f"{PROVIDERS}{name}/")
        assert " yet</h2>" in text
        assert words in text


def test_a_capability_tells_breaker_rates_quota_and_last_error(browse: Client, gate: Gate) -> None:
    listed, shown = records.read(browse, f"{PROVIDERS}gate/"), records.read(browse, page(gate))
    for text in (listed, shown):
        assert "closed" in text
        assert "66.6 %" in text
        assert "2 of 10" in text
        assert "ergon-meter-good" in text
        assert "connection_error" in text
        assert TENANT in text
    assert "Closed: calls are allowed." in shown
    assert "100.0 %" in shown
    assert f'data-charts="/admin/series/?of=provider&amp;key={gate.pk}"' in shown
    assert "Activity" in shown
    assert "a contract" in shown
    assert "<html" not in records.read(browse, page(gate, "live"))


def test_the_effective_state_is_shown_and_filtered_by(browse: Client, gate: Gate) -> None:
    trip()
    assert "Open after 5 consecutive failures" in records.read(browse, page(gate))
    assert "rank rank_snapshot" in records.read(browse, f"{PROVIDERS}gate/?breaker=open")
    Gate.objects.update(open_until=1.0)
    assert "Half open: the next calls probe" in records.read(browse, page(gate))
    assert "rank rank_snapshot" in records.read(browse, f"{PROVIDERS}gate/?breaker=half_open")
    assert "rank rank_snapshot" not in records.read(browse, f"{PROVIDERS}gate/?breaker=open")
    Gate.objects.update(used=8)
    assert "ergon-meter-warning" in records.read(browse, f"{PROVIDERS}gate/?quota=near")
    Gate.objects.update(used=10)
    assert "ergon-meter-bad" in records.read(browse, f"{PROVIDERS}gate/?quota=spent")
    assert "The quota is used up" in records.read(browse, page(gate))
    for wrong in ("breaker=ajar", "quota=much", "nothing=1"):
        assert browse.get(f"{PROVIDERS}gate/?{wrong}").status_code == 302


def test_times_that_no_calendar_knows_break_no_page(browse: Client, gate: Gate) -> None:
    """As releases wrote them whose policies had no longest cooldown."""
    beyond = 999_999_999_999.0
    Gate.objects.update(state="open", open_until=beyond, cooldown_until=beyond)
    until = f"to_timestamp({beyond})" if connection.vendor == "postgresql" else "NULL"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""INSERT INTO provider_events (tenant_id, provider_name, capability, kind, from_state, to_state,
            generation, until) VALUES (%s, %s, %s, 'breaker', 'closed', 'open', 1, {until})""",
            WHO,
        )
    event = ProviderEvent.objects.get(kind="breaker")
    for path in ("/admin/", f"{PROVIDERS}gate/", page(gate), f"{PROVIDERS}providerevent/", page(event)):
        assert browse.get(path).status_code == 200, path


def test_the_export_has_what_the_list_shows(browse: Client, gate: Gate) -> None:
    trip()
    Gate.objects.update(open_until=1.0, window_start=0.0, window_end=86_400.0)
    (row,) = records.exported(browse, f"{PROVIDERS}gate/export.json?breaker=half_open")
    assert (row["state"], row["consecutive_failures"], row["reopens_at"]) == ("half_open", 5, None)
    assert (row["success_rate_1h"], row["attempts_1h"], row["last_error_code"]) == (0.25, 8, "connection_error")
    assert row["p95_latency_ms_1h"] >= 0
    assert (row["quota_limit"], row["used"], row["override"]) == (10, 0, "")
    calls.force_closed(WHO, by="ada", reason="they are back", lasting=timedelta(hours=1))
    (row,) = records.exported(browse, f"{PROVIDERS}gate/export.json")
    assert (row["state"], row["override"], row["override_by"]) == ("closed", "closed", "ada")
    Gate.objects.update(override_until=1.0)
    (row,) = records.exported(browse, f"{PROVIDERS}gate/export.json")
    assert (row["state"], row["override"], row["override_by"]) == ("half_open", "", None)
    lines = b"".join(browse.get(f"{PROVIDERS}gate/export.csv")).decode().splitlines()
    assert lines[0].startswith("tenant_id,provider_name,capability,state,")
    assert f"{TENANT},rank,rank_snapshot,half_open," in lines[1]


def test_an_export_has_every_capability(browse: Client) -> None:
    for number in range(3):
        calls.set_quota(WHO._replace(capability=f"capability {number}"), limit=10, window=60, by="ada")
    assert [row["capability"][-1] for row in records.exported(browse, f"{PROVIDERS}gate/export.json")] == list("012")


def sent_away(celery_id: str, state: str = "rescheduled", capability: str = "rank_snapshot") -> TaskExecution:
    """An invocation of a task that has called a capability."""
    task = TaskExecutionFactory.create(celery_task_id=celery_id, state=state, finished_at=Now())
    scripted({}, capability=capability).ask(task_execution_id=task.pk)
    return task


def test_a_capability_says_what_waits_for_it(browse: Client, gate: Gate) -> None:
    assert "None: every task" in records.read(browse, page(gate))
    ended = [sent_away("c-1", "succeeded"), sent_away("c-2", "failed"), sent_away("c-3"), sent_away("c-3", "succeeded")]
    elsewhere = sent_away("c-4", capability="keyword_volume")
    assert "None: every task" in records.read(browse, page(gate))
    waits = [sent_away("c-5"), sent_away("c-6")]
    for shown in (records.read(browse, page(gate)), records.read(browse, page(gate, "live"))):
        assert "tasks of the last hour were rescheduled and will run again" in shown
        assert [page(task) in shown for task in waits] == [True, True]
        assert [page(task) in shown for task in (*ended, elsewhere)] == [False] * 5
    address = f"{PROVIDERS}taskexecution/export.json?tenant={TENANT}&waits_for=rank/rank_snapshot"
    assert {row["celery_task_id"] for row in records.exported(browse, address)} == {"c-5", "c-6"}


def test_what_waits_is_counted_and_previewed(browse: Client, gate: Gate) -> None:
    for number in range(12):
        sent_away(f"c-{number}")
    first = TaskExecution.objects.filter(celery_task_id="c-11")
    first.update(started_at=timezone.now() - timedelta(minutes=30))
    again = sent_away("c-11")
    shown = records.read(browse, page(gate))
    assert f'tenant={TENANT}&amp;waits_for=rank%2Frank_snapshot">12</a> tasks' in shown
    assert shown.split("Rescheduled tasks")[1].split("Latest attempts")[0].count("ranks.fetch") == 10
    assert page(again) in shown
    assert "30 min ago" in shown
    assert records.read(browse, f"{PROVIDERS}taskexecution/?tenant={TENANT}&waits_for=rank/rank_snapshot").count(
        'class="data-row'
    )
    for wrong in ("waits_for=rank/rank_snapshot", f"tenant={TENANT}&waits_for=rank"):
        assert browse.get(f"{PROVIDERS}taskexecution/?{wrong}").status_code == 302


def test_a_breaker_is_forced_and_reset_with_a_reason(browse: Client, gate: Gate) -> None:
    assert "All calls are blocked" in records.read(browse, page(gate, "force-open"))
    browse.post(page(gate, "force-open"), {**DIALOG, "reason": ""})
    assert Gate.objects.get().override == ""
    sent = {**DIALOG, "minutes": "30"}
    assert browse.post(page(gate, "force-open"), sent).headers["HX-Redirect"] == page(gate)
    shown = records.read(browse, page(gate))
    assert "Forced open by ada, for 29 min" in shown or "Forced open by ada, for 30 min" in shown
    assert "the supplier moves" in shown
    assert "by ada" in records.read(browse, f"{PROVIDERS}gate/?breaker=forced")
    result = scripted({}).ask()
    assert result.reason_code == "circuit_open"
    browse.post(page(gate, "force-close"), {**DIALOG, "minutes": "30", "is_endless": "on"})
    assert "Forced closed by ada, until it is reset" in records.read(browse, page(gate))
    browse.post(page(gate, "reset"), DIALOG)
    assert "Closed: calls are allowed." in records.read(browse, page(gate))
    actions = AuditEntry.objects.filter(action__startswith="breaker").values_list("action", "actor", "reason")
    assert set(actions) == {
        (f"breaker.{verb}", "ada", "the supplier moves") for verb in ("force_open", "force_closed", "reset")
    }


@pytest.mark.parametrize("minutes", [{}, {"minutes": ""}])
def test_a_breaker_that_is_forced_without_minutes_is_so_for_half_an_hour(
    browse: Client, gate: Gate, minutes: dict[str, str]
) -> None:
    assert 'name="minutes" value="30' in records.read(browse, page(gate, "force-open"))
    browse.post(page(gate, "force-open"), {**DIALOG, **minutes})
    until = Gate.objects.get().override_until
    assert until is not None
    assert timedelta(minutes=29) < moment(until) - database_time() <= timedelta(minutes=30)


def test_a_quota_is_set_and_dropped(browse: Client, gate: Gate) -> None:
    sent = {"limit": "20", "window": "86400", "reason": "a larger contract"}
    wrong = browse.post(page(gate, "quota"), {**sent, "limit": "-1"})
    assert "greater than or equal to 0" in wrong.content.decode()
    assert browse.post(page(gate, "quota"), sent).headers["Location"] == page(gate)
    assert "2 of 20" in records.read(browse, page(gate))
    new = {**sent, "tenant_id": "acme", "provider_name": "mail", "capability": "send"}
    made = browse.post(f"{PROVIDERS}gate/add/", new).headers["Location"]
    assert "0 of 20" in records.read(browse, made)
    browse.post(page(gate, "drop-quota"), DIALOG)
    assert "no quota" in records.read(browse, page(gate))
    # Events record seconds; people read the length of the window.
    for address in (page(gate), f"{PROVIDERS}providerevent/"):
        assert "none → 10 in 1 d" in records.read(browse, address)


def test_attempts_are_found_by_what_they_were(browse: Client, gate: Gate) -> None:
    metric = ProviderExecutionMetric.objects.filter(outcome="retry").get()
    address = f"{PROVIDERS}providerexecutionmetric/"
    for asked, count in {
        "": 3,
        "outcome=success": 2,
        "reason=connection_error": 1,
        f"tenant={TENANT}&outcome=success": 2,
        f"tenant={TENANT}&provider=rank&capability=rank_snapshot": 3,
        f"tenant={TENANT}&provider=rank&capability=rank_snapshot&reason=timeout": 0,
        f"q={metric.correlation_id}": 2,
        f"correlation={metric.correlation_id}&outcome=retry": 1,
        "task=1": 0,
    }.items():
        assert len(records.exported(browse, f"{address}export.json?{asked}")) == count, asked
    shown = records.read(browse, page(metric))
    assert "1 of 3" in shown
    assert "2 of 3" in shown
    for wrong in ("outcome=well", "reason=none", "task=x"):
        assert browse.get(f"{address}?{wrong}").status_code == 302
    assert browse.get(f"{address}99999999999999999999/change/").status_code == 404


def test_a_capability_has_a_history_of_its_changes(browse: Client) -> None:
    scripted({}).ask()
    gate = Gate.objects.get()
    assert "No changes yet" in records.read(browse, page(gate))
    trip()
    calls.force_closed(WHO, by="ada", reason="they are <back>")
    opened, forced = ProviderEvent.objects.order_by("id")
    for shown in (records.read(browse, page(gate)), records.read(browse, page(gate, "live"))):
        assert page(opened) in shown
        assert page(forced) in shown
        assert shown.index(page(forced)) < shown.index(page(opened))
        assert "they are &lt;back&gt;" in shown
        assert f"{PROVIDERS}providerevent/?tenant={TENANT}&amp;provider=rank&amp;capability=rank_snapshot" in shown
    one = records.read(browse, page(opened))
    assert page(gate) in one
    assert "connection_error" in one


def test_what_concerns_a_whole_account_says_so(browse: Client, gate: Gate) -> None:
    calls.force_open(Who.of_account("rank"), by="ada", reason="they move")
    account = Gate.objects.get(capability="*")
    event = ProviderEvent.objects.get(tenant_id="*")
    for address in (page(account), page(account, "live"), page(event)):
        shown = records.read(browse, address)
        assert "All events of this account" in shown
        assert "of this capability" not in shown
    assert "rank of all tenants" in records.read(browse, page(event))
    listed = records.read(browse, f"{PROVIDERS}providerevent/?provider=rank&capability=*")
    assert "all tenants" in listed
    assert "rank *" not in listed
    assert "All events of this capability" in records.read(browse, page(gate))


def test_a_capability_tells_how_many_places_of_its_bulkhead_are_taken(browse: Client, gate: Gate) -> None:
    def write(bulkhead: dict[str, Any]) -> None:
        policies.write("rank", "rank_snapshot", body={"bulkhead": bulkhead}, by="ada", reason="too many")

    assert "places taken" not in records.read(browse, page(gate))
    now = database_time().timestamp()
    Gate.objects.update(running={"1": now + 600, "2": now + 600, "3": now + 600, "4": now - 600})
    # By its class, and by its policy if it has one.
    registered = registry.register(scripted({}, bulkhead=BulkheadPolicy(8)))
    try:
        assert "3 of 8 places taken" in records.read(browse, page(gate))
        write({"max_concurrent": 4})
        assert "3 of 4 places taken" in records.read(browse, page(gate, "live"))
        Gate.objects.update(running={})
        assert "0 of 4 places taken" in records.read(browse, page(gate, "live"))
        write({"max_concurrent": 4, "scope": "process"})
        assert "places taken" not in records.read(browse, page(gate, "live"))
    finally:
        registry.forget(registered.provider_name, registered.capability)


def test_events_are_found_by_what_they_were(browse: Client, gate: Gate) -> None:
    trip()
    calls.force_closed(WHO._replace(capability="other"), by="bob", reason="they are back")
    address = f"{PROVIDERS}providerevent/"
    assert "rank rank_snapshot" in records.read(browse, address)
    for asked, count in {
        "": 3,
        "kind=breaker": 1,
        f"tenant={TENANT}": 3,
        f"tenant={TENANT}&provider=rank&capability=rank_snapshot": 2,
        f"tenant={TENANT}&provider=rank&capability=rank_snapshot&kind=quota": 1,
        "provider=rank&capability=other": 1,
        f"tenant={TENANT}&by=bob": 1,
        "tenant=somebody": 0,
    }.items():
        assert len(records.exported(browse, f"{address}export.json?{asked}")) == count, asked
    (row,) = records.exported(browse, f"{address}export.json?by=bob")
    told = [row[name] for name in ("kind", "from_state", "to_state", "why")]
    assert told == ["override", "none", "closed", "they are back"]
    assert browse.get(f"{address}?kind=odd").status_code == 302
    assert browse.get(f"{address}99999999999999999999/change/").status_code == 404
    assert browse.post(page(ProviderEvent.objects.first()), DIALOG).status_code == 403


def test_what_stood_in_is_shown_counted_and_found(browse: Client) -> None:
    provider = scripted({"rank": 1}, cache_for=3600.0)
    provider.ask()
    gate = Gate.objects.get()
    assert "Cache hits" not in records.read(browse, page(gate))
    provider.ask()
    shown = records.read(browse, page(gate))
    assert "Cache hits, last hour" in shown
    assert "Drop cached answers" in shown
    address = f"{PROVIDERS}providerexecutionmetric/"
    assert [row["source"] for row in records.exported(browse, f"{address}export.json?source=cache")] == ["cache"]
    metric = ProviderExecutionMetric.objects.get(source="cache")
    assert "Source of the answer</dt><dd>cache" in records.read(browse, page(metric))
    assert '<span class="ergon-tag ergon-tag-good">cache</span>' in records.read(browse, f"{address}?source=cache")
    browse.post(page(gate, "drop-answers"), DIALOG)
    assert not CachedAnswer.objects.exists()
    shown = records.read(browse, page(gate))
    assert "Drop cached answers" not in shown
    assert "cache.drop" in shown


def test_tasks_and_letters_have_pages(browse: Client) -> None:
    task = TaskExecutionFactory.create(celery_task_id="c-1")
    scripted(DOWN).ask(task_execution_id=task.pk, task_name="ranks.fetch", correlation_id="order-7")
    address = f"{PROVIDERS}taskexecution/"
    for asked in ("", "?q=c-1", f"?tenant={TENANT}&state=started", "?task=ranks.fetch"):
        assert "ranks.fetch" in records.read(browse, f"{address}{asked}")
    assert "3 of 3" in records.read(browse, page(task))
    letter = OutboxLetter.objects.get()
    assert "connection_error" in records.read(browse, f"{PROVIDERS}outboxletter/?published=waiting")
    assert " yet</h2>" not in records.read(browse, f"{PROVIDERS}outboxletter/")
    assert records.exported(browse, f"{PROVIDERS}outboxletter/export.json?published=published") == []
    shown = records.read(browse, page(letter))
    assert f"/admin/engines/deadletter/{letter.dead_letter_id}/change/" in shown
    assert "order-7" in shown


def test_a_policy_begins_as_the_class_says_and_the_next_call_obeys_it(browse: Client) -> None:
    provider = scripted(DOWN, provider_name="mail", capability="send", timeout=7.0)
    asked = {"provider_name": "mail", "capability": "send", "reason": "begin"}
    assert 'value="mail"' in records.read(browse, f"{PROVIDERS}providerpolicyrow/add/?provider_name=mail")
    made = browse.post(f"{PROVIDERS}providerpolicyrow/add/", asked).headers["Location"]
    row = ProviderPolicyRow.objects.get()
    assert row.active is not None
    assert (row.active.body["timeout"], row.active.body["retry"]["max_attempts"]) == (7.0, 3)
    shown = records.read(browse, made)
    assert "3 attempts at most" in shown
    assert "applies from the next call on" in shown
    whole = ProviderPolicy.from_stored(row.active.body).to_dict()
    sent = {name: value for name, value in _fields(whole) if value is not False and value is not None}
    sent |= {"expected": "1", "reason": "once is enough", "retry.max_attempts": "1"}
    wrong = browse.post(made, {**sent, "on_store_failure": "perhaps"}).content.decode()
    assert "Must be closed or local." in wrong
    assert browse.post(made, sent).status_code == 302
    assert len(provider.ask().attempts) == 1
    assert ProviderExecutionMetric.objects.get().policy_version == 2
    first = row.versions.get(number=1)
    assert browse.post(page(first, "activate"), {**DIALOG, "expected": "2"}).headers["HX-Redirect"] == made
    assert len(provider.ask().attempts) == 3


def _fields(body: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in body.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("viewer", ()),
        ("operator", ("reset", "drop-answers")),
        ("lead", ("reset", "drop-answers", "force-open", "force-close", "quota", "drop-quota")),
    ],
)
def test_a_role_may_press_its_buttons_alone(
    client: Client, hire: Callable[[str], User], gate: Gate, role: str, may: tuple[str, ...]
) -> None:
    client.force_login(hire(role))
    shown = records.read(client, page(gate))
    assert ("disabled" in shown) == (role != "lead")
    assert "a contract" in shown
    assert "/admin/access/auditentry/" not in shown
    for verb in ("reset", "drop-answers", "force-open", "force-close", "quota", "drop-quota"):
        sent = {**DIALOG, "limit": "5", "window": "60"}
        assert (client.post(page(gate, verb), sent).status_code == 403) == (verb not in may), verb
    asked = {"provider_name": "mail", "capability": "send", "reason": "begin"}
    assert client.post(f"{PROVIDERS}providerpolicyrow/add/", asked).status_code == 403
    client.force_login(hire("policy editor"))
    assert client.post(f"{PROVIDERS}providerpolicyrow/add/", asked).status_code == 302
    assert client.post(page(gate, "reset"), DIALOG).status_code == 403


def test_the_dashboard_and_the_doctor_tell_what_needs_a_person(browse: Client, gate: Gate) -> None:
    assert "Nothing needs attention." in records.read(browse, "/admin/")
    trip()
    shown = records.read(browse, "/admin/")
    assert "rank rank_snapshot: breaker open" in shown
    assert "The breaker is open after 5 consecutive failures" in shown
    calls.force_open(WHO, by="ada", reason="they move", lasting=timedelta(hours=1))
    calls.set_quota(WHO, limit=8, window=86_400, by="ada")
    shown = records.read(browse, "/admin/")
    assert "by ada: they move" in shown
    assert "The quota is 87 % used: 7 of 8" in shown


def test_no_page_asks_the_database_too_often(browse: Client, gate: Gate) -> None:
    for number in range(30):
        calls.set_quota(WHO._replace(capability=f"capability {number}"), limit=10, window=60, by="ada")
    for number in range(12):
        sent_away(f"c-{number}")
    metric = ProviderExecutionMetric.objects.first()
    names = ("gate", "providerexecutionmetric", "providerevent", "taskexecution", "outboxletter")
    addresses = [f"{PROVIDERS}{name}/" for name in names]
    addresses += [
        page(gate),
        page(metric),
        page(ProviderEvent.objects.first()),
        f"{PROVIDERS}providerpolicyrow/",
        "/admin/",
    ]
    for address in addresses:
        with CaptureQueriesContext(connection) as asked:
            assert browse.get(address).status_code == 200
        assert len(asked) <= QUERY_BUDGET, (address, [one["sql"] for one in asked])

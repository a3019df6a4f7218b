"""Attention: causes before their consequences, acts beside them, acknowledgements, and where activity leads to."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.db import connection
from django.http import HttpRequest
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import pipelines, transactions
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from engines.models import DeadLetter, DeadLetterGroup, Pipeline, Policy
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.console.targets import addresses
from ergon_site.access.database.clock import database_time
from ergon_site.access.models import AcknowledgedItem, ApiClient, AuditEntry
from ergon_site.console import console
from ergon_site.dashboard import badges
from facts import provisioning
from providers import ProviderConnectionError, RetryPolicy, calls
from providers.models import Gate
from tests.api.api_clients import post, problem
from tests.commands import run
from tests.console import records
from tests.factories import ThroughputFactory, WaitingSampleFactory, make_pipeline
from tests.facts.drafts import make_boundary
from tests.providers.scripted_providers import WHO, scripted

pytestmark = pytest.mark.django_db


ENGINES = "/admin/engines/"
DOWN = ProviderConnectionError("no route")
ONCE = RetryPolicy(max_attempts=1)
QUERY_BUDGET = 12
DIALOG = {"_form_submitted": "on", "reason": "we know", "hours": "4"}


@pytest.fixture(autouse=True)
def _no_number_is_remembered() -> Iterator[None]:
    badges.forget()
    yield
    badges.forget()


def text(client: Client, address: str = "/admin/") -> str:
    """The words of a page, as they are read."""
    page = client.get(address)
    assert page.status_code == 200
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.content.decode())).split())


def break_down(*uids: str) -> Gate:
    """Five failed calls open the breaker, under these ids."""
    for uid in [*uids, *["other"] * 5][: max(5, len(uids))]:
        scripted(DOWN, retry_policy=ONCE).ask(correlation_id=uid)
    Gate.objects.update(open_until=(database_time() + timedelta(hours=1)).timestamp())
    return Gate.objects.get()


def outage() -> tuple[Gate, list[DeadLetter]]:
    """An open breaker with three dead letters of one kind and two transactions that wait; and one letter of its own."""
    orders = make_pipeline("orders")
    make_pipeline("later")
    records.make_worker("orders", "later")
    letters = [records.fail(orders, {}, records.failure("no route")) for _ in range(3)]
    own = records.fail(orders, {}, records.failure("card declined"))
    waiting = [transactions.submit("later", {}).id for _ in range(2)]
    return break_down(*(letter.uid for letter in letters), *waiting), [*letters, own]


def asked_by(user: object) -> HttpRequest:
    request = RequestFactory().get("/")
    request.user = user  # type: ignore[assignment]
    return request


def test_audit_targets_of_every_app_lead_to_their_pages_by_one_statement(
    administrator: User, hire: Callable[[str], User]
) -> None:
    console()
    orders = make_pipeline("orders")
    letter, left = records.fail(orders, {}), records.fail(orders, {})
    pipelines.pause("orders", by="ada", reason="")

    new = transactions.replay(letter.uid, by="ada", reason="")
    transactions.cancel(new.id, by="ada", reason="")
    operation = bulk.begin("discard", left.group_id, Terms(), by="ada", reason="")
    calls.force_open(WHO, by="ada", reason="moving")
    boundary = make_boundary()
    provisioning.close_gate(str(boundary.from_zone), str(boundary.to_zone), by="ada", reason="moving")
    clients.create("press", Grant(scopes=["metrics:read"]), by="ada")
    targets = {entry.target for entry in AuditEntry.objects.all()}
    client, gate = ApiClient.objects.get(), Gate.objects.get()
    engines = "/admin/engines/"
    with CaptureQueriesContext(connection) as queries:
        found = addresses(
            asked_by(administrator),
            [*targets, "attention item group:1", "pipeline gone", "dead letter 99999999999999999999 of x"],
        )
    assert len(queries) == 1
    assert found.pop("attention item group:1") == "/admin/"
    assert set(found) == targets - {"facts"}
    assert found["pipeline orders"] == f"{engines}pipeline/{orders.pk}/change/"
    transaction = f"{engines}transactionrecord/{letter.transaction_id}/change/"
    assert found[f"transaction {letter.uid}"] == transaction
    assert found[f"bulk operation {operation.pk}"] == f"{engines}bulkoperation/{operation.pk}/change/"
    assert found[str(gate)] == f"/admin/providers/gate/{gate.pk}/change/"
    assert found[f"boundary {boundary}"] == f"/admin/facts/boundary/{boundary.pk}/change/"
    assert found["API client press"] == f"/admin/access/apiclient/{client.pk}/change/"
    assert set(found) - set(addresses(asked_by(hire("viewer")), targets)) == {"API client press"}


def test_an_open_breaker_is_the_cause_of_what_it_blocks(client: Client, hire: Callable[[str], User]) -> None:
    gate, [letter, *_, own] = outage()
    client.force_login(hire("lead"))
    page, markup = text(client), client.get("/admin/").content.decode()
    since = re.search(r"critical rank rank_snapshot: breaker open since \d\d:\d\d : 3 dead letters, 2 waiting", page)
    assert since
    assert "2 items need attention" in page
    assert page.index("breaker open") < page.index("3 failed with ConnectionError: no route") < page.index("declined")
    assert f'hx-get="/admin/providers/gate/{gate.pk}/reset/?from=dashboard"' in markup
    for group in (letter.group_id, own.group_id):
        assert f'hx-get="{ENGINES}deadlettergroup/{group}/replay-all/?from=dashboard"' in markup
    assert "Providers Capabilities: 1 open." in page
    # The button leads back to the dashboard, and without its cause a consequence stands for itself.
    address = f"/admin/providers/gate/{gate.pk}/reset/?from=dashboard"
    assert client.post(address, DIALOG, headers={"HX-Request": "true"}).headers["HX-Redirect"] == "/admin/"
    page = text(client)
    assert "2 items need attention" in page
    assert "breaker open" not in page
    assert "Providers Every breaker is closed" in page


@pytest.mark.parametrize(("role", "refused"), [("viewer", 4), ("operator", 2), ("lead", 0)])
def test_acts_that_a_person_may_not_do_are_shown_with_the_reason(
    client: Client, hire: Callable[[str], User], role: str, refused: int
) -> None:
    outage()
    client.force_login(hire(role))
    markup = client.get("/admin/live/").content.decode()
    buttons = re.findall(r"<button[^>]*>(?:Reset breaker|Replay group|Acknowledge)</button>", markup)
    assert len(buttons) == 5
    assert sum("disabled" in one for one in buttons) == (5 if role == "viewer" else refused)
    assert ("Needs the role lead or administrator" in markup) is (refused > 0)
    if role == "viewer":
        assert client.post("/admin/attention/acknowledge/?key=x", DIALOG).status_code == 403


def test_an_acknowledged_item_is_folded_away_until_it_is_worse(client: Client, hire: Callable[[str], User]) -> None:
    gate, letters = outage()
    client.force_login(hire("operator"))
    key = f"provider:{gate.pk}"
    address = f"/admin/attention/acknowledge/?key={key}"
    assert (
        'hx-post="/admin/attention/acknowledge/?key=provider'
        in client.get(address, headers={"HX-Request": "true"}).content.decode()
    )
    assert "Acknowledge the item" in text(client, address)
    client.post(address, DIALOG)
    page = text(client)
    assert "1 item needs attention" in page
    assert "1 acknowledged" in page
    assert re.search(r"Acknowledged by operator until \d{4}-\d\d-\d\d \d\d:\d\d UTC : we know", page)
    entry = AuditEntry.objects.get(action="attention.acknowledge")
    assert (entry.actor, entry.target, entry.reason) == ("operator", f"attention item {key}", "we know")
    # One more of six is no more than a quarter.
    more = [records.fail(Pipeline.objects.get(name="orders"), {}, records.failure("no route")) for _ in range(2)]
    scripted(DOWN, retry_policy=ONCE).ask(correlation_id=more[0].uid)
    assert "1 acknowledged" in text(client)
    scripted(DOWN, retry_policy=ONCE).ask(correlation_id=more[1].uid)
    assert "acknowledged" not in text(client)
    client.post(address, DIALOG)
    assert "1 acknowledged" in text(client)
    client.post(f"/admin/attention/withdraw/?key={key}", DIALOG)
    assert "acknowledged" not in text(client)
    assert "has the key" in client.post(f"/admin/attention/withdraw/?key={key}", DIALOG, follow=True).content.decode()
    assert client.post("/admin/attention/withdraw/?key=%00", DIALOG).status_code == 302
    client.post(address, DIALOG)
    AcknowledgedItem.objects.update(until=database_time())
    assert "acknowledged" not in text(client)
    client.post(address, DIALOG)
    assert AcknowledgedItem.objects.count() == 1
    calls.force_open(WHO, by="ada", reason="moving")
    page = text(client)
    assert "acknowledged" not in page
    assert re.search(r"warning rank rank_snapshot: forced open by ada since \d\d:\d\d : ", page)
    client.post(address, DIALOG)
    assert "1 acknowledged" in text(client)
    # The same breaker, open once more.
    calls.reset(WHO, by="ada", reason="back")
    break_down(letters[0].uid)
    assert "acknowledged" not in text(client)


@pytest.mark.parametrize("amount", ["nothing", "very much"])
def test_the_dashboard_costs_the_same_whatever_there_is(
    client: Client, hire: Callable[[str], User], amount: str
) -> None:
    if amount == "very much":
        outage()
        make_boundary()
        long_ago = database_time() - timedelta(days=1)
        policy = Policy.objects.get(name="default")
        Pipeline.objects.bulk_create(
            Pipeline(name=f"pipeline-{number}", task="t", policy=policy, paused_at=database_time(), paused_by="ada")
            for number in range(200)
        )
        DeadLetterGroup.objects.bulk_create(
            DeadLetterGroup(
                fingerprint=f"{number:032}",
                source="orders",
                step="process",
                category="SYSTEM",
                error_type="E" * 200,
                message="m" * 500,
                total=3,
                last_seen_at=long_ago,
                open_count=3,
            )
            for number in range(5000)
        )
        Gate.objects.bulk_create(
            Gate(tenant_id=f"tenant-{number}", provider_name="rank", capability="rank_snapshot", override="open")
            for number in range(250)
        )
        for name in ("press", "shop"):
            clients.create(name, Grant(scopes=["metrics:read"]), by="ada")
    client.force_login(hire("administrator"))
    for address in ("/admin/", "/admin/live/", "/admin/badges/"):
        badges.forget()
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(address)
        assert answer.status_code == 200
        assert len(queries) <= QUERY_BUDGET, [query["sql"][:100] for query in queries]
    page = text(client)
    if amount == "nothing":
        assert "Nothing needs attention." in page
        assert "Engines No pipelines." in page
    else:
        # Of capabilities no more than so many are read, and nobody is told that these are all.
        assert "5,401+ items need attention" in page
        assert "and 194+ more like these" in page
        assert "kinds of failure" in page
        assert "and 195 more like these" in page
        assert json.loads(client.get("/admin/badges/").content) == {
            "ergon:index": "999+",
            "ergon:engines_deadlettergroup_changelist": "999+",
        }


def test_badges_are_numbers_of_the_last_seconds_or_none(client: Client, hire: Callable[[str], User]) -> None:
    client.force_login(hire("operator"))
    letter = records.fail(make_pipeline("orders"), {})
    listed = f"{ENGINES}pipeline/"
    hidden = re.compile(r'data-badge="ergon:index" hidden>')
    shown = re.compile(r'data-badge="ergon:index"><span data-count>1</span><span class="ergon-unseen"> attention items')

    def markup() -> str:
        return client.get(listed).content.decode()

    with CaptureQueriesContext(connection) as cold:
        assert hidden.search(markup())
    assert not any("deadlettergroup" in query["sql"] for query in cold)
    assert client.get("/admin/badges/").json()["ergon:index"] == "1"
    assert shown.search(markup())
    # Within the seconds nobody asks again; an acknowledgement is seen at once.
    with CaptureQueriesContext(connection) as kept:
        client.get("/admin/badges/")
    assert not any("deadlettergroup" in query["sql"] for query in kept)
    client.post(f"/admin/attention/acknowledge/?key=group:{letter.group_id}", DIALOG)
    assert hidden.search(markup())
    assert client.get("/admin/badges/").json() == {
        "ergon:index": "",
        "ergon:engines_deadlettergroup_changelist": "1",
    }
    assert "no-store" in client.get("/admin/badges/").headers["Cache-Control"]


def test_badges_that_are_older_than_some_seconds_are_not_shown(
    client: Client, hire: Callable[[str], User], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(hire("viewer"))
    records.fail(make_pipeline("orders"), {})
    client.get("/admin/")
    monkeypatch.setattr(badges, "FRESH", 0.0)
    assert 'data-badge="ergon:index" hidden' in client.get(f"{ENGINES}pipeline/").content.decode()


def test_activity_leads_to_its_objects_and_tiles_say_how_it_was(browse: Client) -> None:
    orders = make_pipeline("orders")
    pipelines.pause("orders", by="ada", reason="")
    now = timezone.now().replace(second=0, microsecond=0)
    for ago, succeeded, failed in ((5, 30, 10), (65, 15, 5)):
        ThroughputFactory.create(
            pipeline=orders, minute=now - timedelta(minutes=ago), succeeded=succeeded, failed=failed
        )
    WaitingSampleFactory.create(minute=now - timedelta(minutes=50), waiting=7)
    page, markup = text(browse), browse.get("/admin/").content.decode()
    assert f'<a href="{ENGINES}pipeline/{orders.pk}/change/">pipeline orders</a>' in markup
    assert re.search(r"Waiting 0 .*?7 at \d\d:\d\d", page)
    assert re.search(r"Finished in the last hour 40 .*?20 the hour before", page)
    assert re.search(r"Failure rate 25.0 % .*?25.0 % the hour before", page)
    assert "Finished in the last hour, at most 40 in 5 minutes" in page
    assert "Engines 0 workers serve 0 of 1 pipeline, 1 paused; 0 running." in page


def test_the_api_and_the_command_acknowledge_like_the_dashboard(token: str, client: Client) -> None:
    api = Client(headers={"Authorization": f"Bearer {token}"})
    gate, _ = outage()
    key = f"provider:{gate.pk}"
    listed = api.get("/api/v1/attention").json()
    first, second = listed["results"]
    assert listed["count"] == 2
    assert (first["item"]["key"], first["item"]["severity"], first["acknowledged"]) == (key, "critical", None)
    assert first["summary"] == "3 dead letters, 2 waiting"
    assert [one["count"] for one in first["consequences"]] == [3, 2]
    asked = {"key": key, "hours": 4, "reason": "known"}
    answer = post(api, "attention/acknowledge", asked)
    assert (answer.status_code, answer.json()["acknowledged"]["by"]) == (200, "client:everything")
    assert answer.json()["acknowledged"]["key"] == key
    assert "acknowledged by client:everything" in run("attention")
    assert post(api, "attention/withdraw", {"key": key, "reason": "wrong"}).status_code == 204
    problem(post(api, "attention/withdraw", {"key": key, "reason": "wrong"}), 404, "item_unknown")
    # A consequence is acknowledged with its cause only.
    letters = first["consequences"][0]["key"]
    problem(post(api, "attention/acknowledge", {**asked, "key": letters}), 404, "item_unknown")
    problem(post(api, "attention/acknowledge", {**asked, "hours": 721}), 400, "invalid_request")
    assert "acknowledged until" in run("attention", "acknowledge", second["item"]["key"], "--reason", "known")
    told = json.loads(run("attention", "list", "--json"))
    assert [one["acknowledged"] is not None for one in told] == [False, True]
    run("attention", "withdraw", second["item"]["key"], "--reason", "wrong")
    with pytest.raises(CommandError, match="has the key"):
        run("attention", "acknowledge", "group:0", "--reason", "known")
    token = clients.create("blind", Grant(scopes=["transactions:operate"]), by="ada").token.text
    blind = {"Authorization": f"Bearer {token}"}
    answer = client.post("/api/v1/attention/acknowledge", asked, content_type="application/json", headers=blind)
    problem(answer, 403, "permission_denied")
    actions = AuditEntry.objects.filter(action__startswith="attention.").values_list("action", "actor")
    assert [action for action, _ in actions.order_by("id")] == ["attention.acknowledge", "attention.withdraw"] * 2

"""Forms that help: presets and a review of policies, tests that begin with a payload, overrides that end, tokens."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from engines import policies, rehearsals, transactions
from engines.core.presets import PRESETS
from engines.models import Pipeline, Policy, PolicyRehearsal, PolicyVersion, TransactionRecord
from ergon_site.access.models import ApiClient, ApiToken, AuditEntry
from ergon_site.access.policies.form import PolicyForm
from providers.models import Gate
from tests.console import records
from tests.factories import make_pipeline

# What depends on the database is tested in tests/engines/test_rehearsals.py, on both.
pytestmark = [pytest.mark.django_db, pytest.mark.once]

ATTEMPTS, TIMEOUT = "steps.process.retry.max_attempts", "steps.process.retry.timeout"
QUERY_BUDGET = 12


@pytest.fixture
def policy() -> Policy:
    body = {"loop": {"concurrency": {"min": 2, "value": 4}}, "steps": {"success": {"retry": {"timeout": 90}}}}
    policies.write("patient", body, kind="consumer", by="ada", reason="for the slow provider")
    return policies.find("patient")


def address(policy: Policy, last: str = "change") -> str:
    return f"/admin/engines/policy/{policy.pk}/{last}/"


def filled(policy: Policy, act: str = "review", **changes: Any) -> dict[str, Any]:
    """What a browser would send of the form as it is, with some fields changed."""
    form = PolicyForm(policies.find(policy.name))
    values = {name: form[name].value() for name in form.fields if name != "reason"}
    return {name: value for name, value in values.items() if value not in (None, False)} | {act: "1"} | changes


def test_presets_fill_the_form_and_say_what_they_change(browse: Client, policy: Policy) -> None:
    page = browse.get(address(policy)).content.decode()
    for preset in PRESETS:
        assert f'name="preset" value="{preset.name}"' in page
    page = browse.post(address(policy), filled(policy, preset="web-hook", **{"loop.limit": "7"})).content.decode()
    notice = page.split("Web hook is filled in.")[1].split("</ul>")[0]
    assert f'<code>{ATTEMPTS}</code> <span class="ergon-was">1 attempt</span> → <strong>8 attempts</strong>' in notice
    assert "<strong>1 h</strong>" in notice
    assert f'name="{ATTEMPTS}" value="8"' in page
    # What was typed before stays, and what a preset does not name as well.
    assert 'name="loop.limit" value="7"' in page
    # A field that is wrong is told, and nothing is lost.
    page = browse.post(address(policy), filled(policy, preset="web-hook", **{"loop.limit": "x"})).content.decode()
    assert "Must be a whole number" in page.split('id="id_loop.limit_error"')[1]
    assert f'name="{ATTEMPTS}" value="8"' in page
    assert browse.post(address(policy), filled(policy, preset="other")).status_code == 404
    assert PolicyVersion.objects.filter(policy=policy).count() == 1


def test_advanced_parts_are_folded_unless_a_field_of_them_is_wrong_or_edited(browse: Client, policy: Policy) -> None:
    def opened(page: str) -> dict[str, str]:
        parts = {part.split('"')[0]: part.split("</summary>")[0] for part in page.split('id="section-')[1:]}
        return {key: part for key, part in parts.items() if "<summary>" in part}

    parts = opened(browse.get(address(policy)).content.decode())
    assert parts.keys() == {"loop", "steps-fetch", "steps-success", "steps-exception", "rest"}
    assert not any(" open>" in part for part in parts.values())
    assert "timeout: 1 min 30 s" in parts["steps-success"]
    assert "defaults" in parts["steps-fetch"]
    wrong = {"steps.fetch.extra": "{", "steps.exception.retry.max_attempts": "2"}
    parts = opened(browse.post(address(policy), filled(policy, **wrong)).content.decode())
    assert [key for key, part in parts.items() if " open>" in part] == ["steps-fetch", "steps-exception"]


def test_changes_are_reviewed_in_words_before_they_are_saved(browse: Client, policy: Policy) -> None:
    assert "There are no changes" in browse.post(address(policy), filled(policy)).content.decode()
    changed = filled(policy, **{ATTEMPTS: "5", TIMEOUT: "90", "loop.streaming": "on"})
    with CaptureQueriesContext(
        connection,
    ) as queries:
        page = browse.post(address(policy), changed).content.decode()
    assert len(queries) <= QUERY_BUDGET
    assert "Changes from version 1 to version 2" in page
    for words in ("<del>1 attempt</del>", "<ins>5 attempts</ins>", "<ins>1 min 30 s</ins>", "<ins>on</ins>"):
        assert words in page
    assert PolicyVersion.objects.filter(policy=policy).count() == 1
    # Without a reason the review is shown again; with one the version is written, reserved fields as they were.
    save = {name: value for name, value in changed.items() if name != "review"}
    page = browse.post(address(policy), {**save, "reason": ""}).content.decode()
    assert "This field is required." in page.split('id="id_reason_error"')[1]
    assert "Changes from version 1" in page
    assert 'value="90"' in browse.post(address(policy), {**save, "edit": "1"}).content.decode()
    assert browse.post(address(policy), {**save, "reason": "slower"}).status_code == 302
    body = policies.find("patient").in_force.policy.to_dict()
    assert body["loop"]["concurrency"]["min"] == 2
    # One that is reserved cannot be fixed in the form: it is named.
    wrong = browse.post(address(policy), filled(policy, **{"loop.concurrency.value": "1"})).content.decode()
    assert "loop.concurrency.min must be at most value (1), not 2." in wrong


def test_a_rehearsal_is_shown_when_it_is_done_and_kept_with_the_version(browse: Client, policy: Policy) -> None:
    make_pipeline("invoices", policy="patient")
    orders = make_pipeline("orders", policy="patient")
    records.succeed(orders, {"order": 1})
    letter = records.fail(orders, {"order": 2})
    sent = filled(policy, **{ATTEMPTS: "2", "loop.limit": "50"})
    page = browse.post(address(policy), sent).content.decode()
    asked = PolicyRehearsal.objects.get()
    part = address(policy, f"rehearsal/{asked.pk}")
    assert f'hx-get="{part}" hx-trigger="every 1s"' in page
    # The page again asks for no other one.
    browse.post(address(policy), sent)
    assert PolicyRehearsal.objects.get() == asked
    PolicyRehearsal.objects.update(created_at=timezone.now() - timedelta(seconds=30))
    late = browse.get(part).content.decode()
    assert "check that the command <code>maintain</code> runs" in late
    assert 'every 5s"' in late
    rehearsals.advance()
    with CaptureQueriesContext(connection) as queries:
        done = browse.get(part).content.decode()
    assert len(queries) <= QUERY_BUDGET
    assert "hx-get" not in done
    assert "Rehearsed with 2 transactions of 2 pipelines from the last 24 hours." in done
    assert "0 to 1 fewer" in done
    assert "1 transaction would have been tried a second time: outcome unknown." in done
    assert "Not rehearsed, since no record tells what it would do: loop.limit." in done
    assert f"?q={letter.uid}" in done
    assert "By pipeline" in done
    save = {name: value for name, value in sent.items() if name != "review"}
    browse.post(address(policy), {**save, "reason": "try twice"})
    version = policies.find("patient").active
    assert version is not None
    assert "Rehearsed with 2 transactions" in records.read(browse, f"/admin/engines/policyversion/{version.pk}/change/")
    assert AuditEntry.objects.get(action="policy.rehearse").after["policy"] == "patient"  # type: ignore[index]
    assert browse.get(address(policy, "rehearsal/99999")).status_code == 404
    PolicyRehearsal.objects.update(state="failed", note="it is broken", result=None)
    assert "The rehearsal failed: it is broken." in browse.get(part).content.decode()
    PolicyRehearsal.objects.update(state="cancelled")
    assert (
        "The rehearsal was cancelled: another one was started, or its page was left."
        in browse.get(part).content.decode()
    )


@pytest.mark.parametrize("told", ["", "soon", "2026-13-45T00:00:00Z", "2026-01-31T12:00:00", "0001-01-01T00:00+23:59"])
def test_what_is_no_time_cancels_no_rehearsal(browse: Client, policy: Policy, told: str) -> None:
    asked = rehearsals.begin(policy, {}, by="ada")
    part = address(policy, f"rehearsal/{asked.pk}")
    assert browse.post(part, {"asked_at": told}).status_code == 400
    assert PolicyRehearsal.objects.get().state == "waiting"
    assert browse.post(part, {"asked_at": asked.created_at.isoformat()}).status_code == 204
    assert PolicyRehearsal.objects.get().state == "cancelled"


def test_a_test_begins_with_the_last_payload_without_what_is_hidden_and_opens_the_transaction(browse: Client) -> None:
    pipeline = make_pipeline("orders", redacted=["customer.email", "iban"])
    page = f"/admin/engines/pipeline/{pipeline.pk}/submit-test/"
    assert "Any JSON value." in records.read(browse, page)
    records.succeed(pipeline, {"order": 1})
    records.fail(pipeline, {"order": 2, "customer": {"email": "ada@example.com"}})
    shown = browse.get(page).content.decode()
    assert "ada@example.com" not in shown
    assert "&quot;email&quot;: &quot;&quot;" in shown
    assert "&quot;order&quot;: 2" in shown
    assert "Hidden fields are left empty, fill them in: customer.email." in shown
    records.succeed(pipeline, "x" * 30_000)
    assert "Any JSON value." in records.read(browse, page)
    records.succeed(pipeline, {"order": 3})
    assert "The payload of an earlier transaction." in records.read(browse, page)
    answer = browse.post(page, {"payload": '{"order": 4}'})
    record = TransactionRecord.objects.latest("pk")
    assert answer.headers["Location"] == f"/admin/engines/transactionrecord/{record.pk}/change/"
    assert transactions.find(record.uid).payload == {"order": 4}


def test_a_test_begins_with_what_waits_where_nothing_has_ended(browse: Client) -> None:
    pipeline = make_pipeline("orders")
    transactions.submit("orders", {"order": 5})
    page = f"/admin/engines/pipeline/{pipeline.pk}/submit-test/"
    assert "&quot;order&quot;: 5" in browse.get(page).content.decode()


def test_a_breaker_is_forced_until_a_time(browse: Client) -> None:
    gate = Gate.objects.create(tenant_id="acme", provider_name="rank", capability="rank_snapshot")
    page = f"/admin/providers/gate/{gate.pk}/force-open/"
    dialog = browse.get(page).content.decode()
    assert 'data-fills="id_minutes" value="60">1 h</button>' in dialog
    sent = {"_form_submitted": "on", "reason": "the supplier moves", "minutes": "30"}
    until = (timezone.now() + timedelta(hours=3)).replace(second=0, microsecond=0)
    for wrong in (timezone.now() - timedelta(minutes=2), timezone.now() + timedelta(days=9999)):
        answer = browse.post(page, {**sent, "until": f"{wrong:%Y-%m-%dT%H:%M}"})
        assert "Must be a time from now on, at most 3,660 days ahead." in answer.content.decode()
    browse.post(page, {**sent, "until": f"{until:%Y-%m-%dT%H:%M}"})
    gate.refresh_from_db()
    assert gate.override == "open"
    assert abs(gate.override_until - until.timestamp()) < 60  # type: ignore[operator]


def test_a_client_needs_a_scope_and_its_token_can_be_copied_and_ends_in_ninety_days(browse: Client) -> None:
    sent = {"name": "erp", "lifetime": "", "tokens-TOTAL_FORMS": "0", "tokens-INITIAL_FORMS": "0"}
    assert "A client needs at least one scope" in browse.post("/admin/access/apiclient/add/", sent).content.decode()
    assert not ApiClient.objects.exists()
    page = browse.post("/admin/access/apiclient/add/", {**sent, "scopes": ["policies:read"]}).content.decode()
    assert 'data-copy="token" hidden>Copy token</button>' in page
    ends = ApiToken.objects.get().expires_at
    assert ends is not None
    assert timedelta(days=89) < ends - timezone.now() <= timedelta(days=90)
    assert f"It expires on {ends:%Y-%m-%d}" in page


def test_a_pipeline_without_transactions_has_nothing_to_rehearse_with(browse: Client, policy: Policy) -> None:
    Pipeline.objects.all().delete()
    browse.post(address(policy), filled(policy, **{ATTEMPTS: "2"}))
    rehearsals.advance()
    part = records.read(browse, address(policy, f"rehearsal/{PolicyRehearsal.objects.get().pk}"))
    assert "There is nothing to rehearse with" in part

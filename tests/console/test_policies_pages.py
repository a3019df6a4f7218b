"""The pages of policies: every field, the drawn attempts, versions, conflicts, rights."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engines import pipelines, policies
from engines.core.policy import ConsumerPolicy, ProducerPolicy
from engines.models import Policy, PolicyVersion
from engines.pipelines import Plan
from ergon_site.access.core.ruled import Ruled, leaves
from ergon_site.access.models import AuditEntry
from ergon_site.access.policies.form import PolicyForm
from providers import policies as provider_policies
from tests.console import records

pytestmark = [pytest.mark.django_db, pytest.mark.once]

QUERY_BUDGET = 12
ATTEMPTS = "steps.process.retry.max_attempts"
# Of a version that is put in force in place of the second.
DIALOG = {"_form_submitted": "on", "expected": "2", "reason": "too few"}


@pytest.fixture
def policy() -> Policy:
    policies.write("patient", {}, kind="consumer", by="ada", reason="for the slow provider")
    return policies.find("patient")


def address(policy: Policy, last: str = "change") -> str:
    return f"/admin/engines/policy/{policy.pk}/{last}/"


def filled(policy: Policy, **changes: Any) -> dict[str, Any]:
    """What a browser would send of the form as it is, with some fields changed."""
    form = PolicyForm(policies.find(policy.name))
    values = {name: form[name].value() for name in form.fields if name != "reason"}
    sent = {name: value for name, value in values.items() if value not in (None, False)}
    return {**sent, "reason": "a try", **changes}


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_the_form_has_every_field_but_the_reserved_with_its_meaning_and_unit(browse: Client, kind: str) -> None:
    policies.write("whole", {}, kind=kind, by="ada", reason="x")
    page = browse.get(address(policies.find("whole"))).content.decode()
    whole: type[Ruled] = ConsumerPolicy if kind == "consumer" else ProducerPolicy
    assert "Reserved" not in page
    for path, one in leaves(whole):
        assert (f'name="{path}"' in page) is not one.metadata.get("is_reserved", False)
        if one.metadata.get("is_reserved"):
            continue
        assert one.metadata["meaning"].replace("'", "&#x27;") in page
        assert one.metadata["unit"] in page


def test_saving_writes_a_version_with_author_and_reason(browse: Client, policy: Policy) -> None:
    answer = browse.post(address(policy), filled(policy, **{ATTEMPTS: "5", "loop.streaming": "on"}))
    assert answer.status_code == 302
    version = policies.find("patient").active
    assert version is not None
    assert (version.number, version.author, version.reason) == (2, "ada", "a try")
    assert version.changes == [
        {"path": "loop.streaming", "before": False, "after": True},
        {"path": ATTEMPTS, "before": 1, "after": 5},
    ]
    assert AuditEntry.objects.filter(action="policy.write", actor="ada", reason="a try").count() == 1


def test_empty_fields_and_objects_are_kept_as_they_are_meant(browse: Client, policy: Policy) -> None:
    changes = {"loop.timeout": "2.5", "steps.fetch.extra": '{"queue": "a"}', "steps.fetch.connector_name": "erp"}
    browse.post(address(policy), filled(policy, **changes))
    browse.post(address(policy), filled(policy, **{"loop.timeout": " "}))
    body = policies.find("patient").in_force.policy.to_dict()
    assert body["loop"]["timeout"] is None
    assert body["steps"]["fetch"]["extra"] == {"queue": "a"}
    assert body["steps"]["fetch"]["connector_name"] == "erp"


def test_a_number_that_is_only_written_otherwise_is_no_change(browse: Client, policy: Policy) -> None:
    page = browse.post(address(policy), filled(policy, retry_after_ceiling="3600.0")).content.decode()
    assert "There are no changes from the active version." in page
    assert PolicyVersion.objects.filter(policy=policy).count() == 1


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (ATTEMPTS, "0", "Must be a whole number of at least 1."),
        (ATTEMPTS, "", "Must be a whole number of at least 1."),
        (ATTEMPTS, "1.5", "Must be a whole number of at least 1."),
        (ATTEMPTS, "9" * 30, "At most 20 characters."),
        ("loop.timeout", "soon", "Must be a number of seconds above 0, or empty."),
        ("loop.timeout", "0", "Must be a number of seconds above 0, or empty."),
        ("steps.process.retry.backoff", "nan", "Must be a number of seconds of at least 0."),
        ("steps.process.retry.backoff_multiplier", "0.5", "Must be a number of at least 1."),
        ("steps.fetch.extra", "[]", "Must be an object."),
        ("steps.fetch.extra", "{", "This is not JSON"),
        ("reason", "", "This field is required."),
    ],
)
def test_an_invalid_policy_is_told_at_its_field_and_never_kept(
    browse: Client, policy: Policy, path: str, value: str, words: str
) -> None:
    page = browse.post(address(policy), filled(policy, **{"loop.limit": "7", path: value})).content.decode()
    wrong = page.split(f'id="id_{path}_error"')[1].split("</ul>")[0]
    assert words in wrong
    assert PolicyVersion.objects.filter(policy=policy).count() == 1
    assert 'value="7"' in page


@pytest.mark.parametrize("act", ["save", "review", "preview"])
def test_what_is_wrong_with_several_parts_loses_no_input(browse: Client, policy: Policy, act: str) -> None:
    steps = [f"steps.{step}.retry.max_attempts" for step in ("fetch", "process")]
    sent = filled(policy, **dict.fromkeys(steps, "9999999999"), **({"review": "1"} if act == "review" else {}))
    answer = browse.post(address(policy, "preview" if act == "preview" else "change"), sent)
    assert answer.status_code == 200
    assert PolicyVersion.objects.filter(policy=policy).count() == 1
    if act != "preview":
        page = answer.content.decode()
        assert "Must be at most 2,147,483,647." in page.split(f'id="id_{steps[0]}_error"')[1]
        assert page.count('value="9999999999"') == len(steps)


def test_what_no_column_can_keep_is_told_above_the_form(browse: Client, policy: Policy) -> None:
    page = browse.post(address(policy), filled(policy, **{"steps.fetch.connector_name": "a\0b"})).content.decode()
    assert "The policy holds U+0000, which no database text can." in page
    assert PolicyVersion.objects.filter(policy=policy).count() == 1


def test_somebody_who_was_slower_is_told_kindly_and_loses_nothing(browse: Client, policy: Policy) -> None:
    mine = filled(policy, **{ATTEMPTS: "7"})
    policies.write("patient", {"loop": {"batch": {"size": 9}}}, by="grace", reason="bigger batches", expected=1)
    page = browse.post(address(policy), mine).content.decode()
    assert "This policy was changed meanwhile." in page
    assert "bigger batches" in page
    assert "loop.batch.size" in page
    assert 'value="7"' in page
    assert 'name="expected" value="2"' in page
    assert PolicyVersion.objects.filter(policy=policy).count() == 2
    assert browse.post(address(policy), {**mine, "expected": "2"}).status_code == 302
    body = policies.find("patient").active.body  # type: ignore[union-attr]
    assert body["steps"]["process"]["retry"]["max_attempts"] == 7


def test_the_attempts_are_drawn_and_told(browse: Client) -> None:
    retry = {"max_attempts": 3, "timeout": 30, "backoff": 1}
    policies.write("patient", {"steps": {"process": {"retry": retry}}}, kind="consumer", by="ada", reason="x")
    page = browse.get(address(policies.find("patient"))).content.decode()
    drawing = page.split('id="outlook-steps-process"')[1].split('class="ergon-hint"')[0]
    assert drawing.count("ergon-attempt") == 3
    assert drawing.count("ergon-wait") == 2
    assert "It gives up after at most 1 min 33 s." in page


def test_the_drawing_follows_what_is_typed(browse: Client, policy: Policy) -> None:
    typed = filled(
        policy, **{ATTEMPTS: "4", "steps.process.retry.backoff": "2", "steps.success.retry.max_attempts": "x"}
    )
    preview = browse.post(address(policy, "preview"), typed).content.decode()
    assert "4 attempts of any length, 14 s of waiting in between." in preview
    assert "once these fields are valid" in preview
    assert preview.count('hx-swap-oob="true"') == 4
    assert PolicyVersion.objects.filter(policy=policy).count() == 1


def test_versions_are_listed_with_what_changed_and_rolled_back_with_a_reason(browse: Client, policy: Policy) -> None:
    version = policy.active
    assert version is not None
    policies.write("patient", {"loop": {"limit": 5}}, by="grace", reason="only five")
    page = browse.get(address(policy)).content.decode()
    assert "only five" in page
    assert "<code>loop.limit</code>" in page
    activate = f"/admin/engines/policyversion/{version.pk}/activate/"
    dialog = browse.get(activate).content.decode()
    assert "From version 2 to version 1 of patient" in dialog
    browse.post(activate, {**DIALOG, "reason": ""})
    assert policies.find("patient").active != version
    answer = browse.post(activate, DIALOG)
    assert answer.headers["HX-Redirect"] == address(policy)
    assert policies.find("patient").active == version
    assert AuditEntry.objects.get(action="policy.activate").reason == "too few"
    assert "Activate" in browse.get(address(policy)).content.decode()


def test_a_roll_back_that_would_undo_what_its_dialog_did_not_show_is_refused(browse: Client, policy: Policy) -> None:
    version = policy.active
    assert version is not None
    policies.write("patient", {"loop": {"limit": 5}}, by="grace", reason="only five")
    activate = f"/admin/engines/policyversion/{version.pk}/activate/"
    assert 'name="expected" value="2"' in browse.get(activate).content.decode()
    policies.write("patient", {"loop": {"limit": 5, "streaming": True}}, by="grace", reason="stream")
    page = browse.post(activate, DIALOG, follow=True).content.decode()
    assert "The policy &#x27;patient&#x27; has changed to version 3: read it again." in page
    assert "Differences from version 3, which is active" in page
    assert policies.find("patient").active.number == 3  # type: ignore[union-attr]


def test_a_version_that_is_not_allowed_any_more_is_refused_on_its_page(browse: Client) -> None:
    written = provider_policies.write("rank", "snapshot", body={}, by="ada", reason="x")
    both = {"on_store_failure": "local", "quota_per_attempt": True}
    by_hand = written.policy.versions.create(number=2, body=both, author="ada", reason="by hand")
    page = f"/admin/providers/providerpolicyversion/{by_hand.pk}"
    answer = browse.post(f"{page}/activate/", {"_form_submitted": "on", "expected": "1", "reason": "x"})
    assert answer.headers["HX-Redirect"] == f"{page}/change/"
    assert "quota_per_attempt must be false where on_store_failure is local" in records.read(browse, f"{page}/change/")


def test_a_version_has_its_own_page(browse: Client, policy: Policy) -> None:
    policies.write("patient", {"loop": {"limit": 5}}, by="grace", reason="only five")
    first, second = policy.versions.order_by("number")
    page = browse.get(f"/admin/engines/policyversion/{first.pk}/change/").content.decode()
    assert "Differences from version 2" in page
    assert "Roll back" in page
    page = browse.get(f"/admin/engines/policyversion/{second.pk}/change/").content.decode()
    assert "active" in page
    assert "Roll back" not in page
    assert browse.post(f"/admin/engines/policyversion/{first.pk}/change/").status_code == 403


def test_a_new_policy_begins_with_the_defaults(browse: Client) -> None:
    answer = browse.post("/admin/engines/policy/add/", {"name": "fresh", "kind": "producer", "reason": "new line"})
    made = policies.find("fresh")
    assert answer.headers["Location"] == address(made)
    assert made.active is not None
    assert made.in_force.policy == ProducerPolicy()
    assert made.active.reason == "new line"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "default"}, "There is a policy named default already."),
        ({"name": "a b"}, "A policy&#x27;s name has 1 to 100 letters"),
        ({"kind": "other"}, "Select a valid choice"),
        ({"reason": ""}, "This field is required."),
    ],
)
def test_a_wrong_new_policy_is_refused_in_words(browse: Client, change: dict[str, str], words: str) -> None:
    before = Policy.objects.count()
    form = {"name": "fresh", "kind": "consumer", "reason": "x", **change}
    assert words in browse.post("/admin/engines/policy/add/", form).content.decode()
    assert Policy.objects.count() == before


def test_the_list_says_who_changed_a_policy_last_and_what_it_governs(browse: Client, policy: Policy) -> None:
    policies.write("patient", {"loop": {"limit": 5}}, by="grace", reason="x")
    policies.activate("patient", 1, by="mary", reason="back")
    pipelines.create("invoices", Plan(task="t", policy="patient"), by="ada")
    page = browse.get("/admin/engines/policy/?q=patient").content.decode()
    row = page.split('id="result_list"')[1]
    assert "mary" in row
    assert "grace" not in row
    assert f"/admin/engines/pipeline/?policy__id__exact={policy.pk}" in row
    assert "invoices" in browse.get(f"/admin/engines/pipeline/?policy__id__exact={policy.pk}").content.decode()


def test_who_may_only_see_finds_every_button_disabled_with_the_reason(
    client: Client, hire: Callable[[str], User], policy: Policy
) -> None:
    policies.write("patient", {"loop": {"limit": 5}}, by="grace", reason="x")
    client.force_login(hire("viewer"))
    page = client.get(address(policy)).content.decode()
    assert page.count("Needs the role policy editor or administrator.") >= 2
    assert "New policy: needs the role policy editor" in client.get("/admin/engines/policy/").content.decode()
    assert client.post(address(policy), filled(policy, **{ATTEMPTS: "5"})).status_code == 403
    assert client.get("/admin/engines/policy/add/").status_code == 403
    version = policy.versions.first()
    assert version is not None
    assert client.post(f"/admin/engines/policyversion/{version.pk}/activate/", DIALOG).status_code == 403
    assert policies.find("patient").active.number == 2  # type: ignore[union-attr]


def test_a_policy_editor_may_save(client: Client, hire: Callable[[str], User], policy: Policy) -> None:
    client.force_login(hire("policy editor"))
    assert client.post(address(policy), filled(policy, **{ATTEMPTS: "5"})).status_code == 302
    assert policies.find("patient").active.author == "policy-editor"  # type: ignore[union-attr]


def test_a_policy_that_is_not_there_is_not_found(browse: Client) -> None:
    for page in ("policy/99999/change", "policy/x/change", "policy/99999/preview", "policyversion/99999/change"):
        assert browse.get(f"/admin/engines/{page}/").status_code == 404
    assert browse.get("/admin/engines/policyversion/99999/activate/").status_code == 403


def test_the_pages_stay_within_their_query_budget(client: Client, hire: Callable[[str], User], policy: Policy) -> None:
    client.force_login(hire("administrator"))
    for number in range(22):
        policies.write("patient", {"loop": {"limit": number + 1}}, by="ada", reason="x")
        policies.write(f"policy{number}", {}, kind="consumer", by="ada", reason="x")
        pipelines.create(f"p{number}", Plan(task="t", policy="patient"), by="ada")
    version = policy.versions.latest("number")
    single = [address(policy), f"/admin/engines/policyversion/{version.pk}/change/"]
    for page in ["/admin/engines/policy/", "/admin/engines/policyversion/", *single]:
        with CaptureQueriesContext(connection) as queries:
            assert client.get(page).status_code == 200
        assert len(queries) <= QUERY_BUDGET, page


def test_policies_are_exported(browse: Client, policy: Policy) -> None:
    body = b"".join(browse.get("/admin/engines/policy/export.csv?q=patient")).decode()
    assert "patient,consumer,1,0,ada," in body

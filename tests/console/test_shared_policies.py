"""An app with policies of its own gets verbs and pages for little: they work for any rows and any fields with rules."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import AppConfig, apps
from django.db import connection
from django.db.models import Model
from django.test import Client, override_settings

from ergon_site.access.models import AuditEntry
from ergon_site.access.policies.errors import PolicyUnknownError, StalePolicyError, VersionUnknownError

pytestmark = pytest.mark.django_db(transaction=True)

START = "/admin/calls/callpolicy/"


@pytest.fixture
def calls(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The app, for as long as a test runs."""
    app = AppConfig.create("tests.calls")
    app.apps = apps
    # Installed by the settings it would make every other app ready a second time.
    monkeypatch.setitem(apps.app_configs, app.label, app)
    app.import_models()
    pages = import_module("tests.calls.pages")
    with _tables(*app.get_models()), pages.registered() as urls, override_settings(ROOT_URLCONF=urls):
        yield SimpleNamespace(policies=pages.POLICIES, versions=app.get_model("CallPolicyVersion")._default_manager)
    apps.clear_cache()


@contextmanager
def _tables(*models: type[Model]) -> Iterator[None]:
    with connection.schema_editor() as editor:
        for model in models:
            editor.create_model(model)
    yield
    with connection.schema_editor() as editor:
        for model in reversed(models):
            editor.delete_model(model)


def test_its_policies_are_written_and_rolled_back_by_what_tells_them_apart(calls: Any) -> None:
    key = ("mail", "send")
    assert calls.policies.look_up(*key) is None
    calls.policies.write(*key, body={}, by="ada", reason="begin", expected=0)
    calls.policies.write(*key, body={"retry": {"max_attempts": 5}}, by="grace", reason="more", expected=1)
    version_id, said = calls.policies.find(*key).in_force
    assert said.retry.max_attempts == 5
    assert calls.versions.get(pk=version_id).changes == [{"path": "retry.max_attempts", "before": 3, "after": 5}]
    calls.policies.activate(*key, number=1, by="mary", reason="back")
    assert calls.policies.find(*key).in_force.policy.retry.max_attempts == 3
    assert set(AuditEntry.objects.values_list("action", "target")) == {
        ("policy.write", "call policy mail/send"),
        ("policy.activate", "call policy mail/send"),
    }


def test_what_its_verbs_refuse_is_never_kept(calls: Any) -> None:
    terms = {"by": "ada", "reason": "x"}
    calls.policies.write("mail", "send", body={}, **terms)
    with pytest.raises(ValueError, match=r"Calling.retry.max_attempts must be a whole number"):
        calls.policies.write("mail", "send", body={"retry": {"max_attempts": 0}}, **terms)
    with pytest.raises(ValueError, match="cannot be stored"):
        calls.policies.write("mail", "send", body={"region": "\0"}, **terms)
    with pytest.raises(StalePolicyError, match="'mail/send' has changed to version 1"):
        calls.policies.write("mail", "send", body={}, expected=0, **terms)
    with pytest.raises(PolicyUnknownError, match="no policy named 'mail/read'"):
        calls.policies.find("mail", "read")
    with pytest.raises(VersionUnknownError, match="'mail/send' has no version 7"):
        calls.policies.activate("mail", "send", number=7, **terms)
    assert calls.versions.count() == 1


def test_its_pages_make_change_compare_and_roll_back(calls: Any, browse: Client) -> None:
    asked = {"provider": "mail", "capability": "send", "reason": "new"}
    page = browse.post(f"{START}add/", asked).headers["Location"]
    assert "has changed to version 1" in browse.post(f"{START}add/", asked).content.decode()
    shown = browse.get(page).content.decode()
    assert "When a call fails." in shown
    assert "of this call policy is active" in shown
    sent = {"expected": "1", "retry.max_attempts": "4", "retry.longest_delay": "5", "retry.base_delay": "0.2"}
    sent |= {"region": "us", "reason": "try once more"}
    wrong = browse.post(page, {**sent, "retry.longest_delay": "0.1"}).content.decode()
    assert "Must be at least base_delay (0.2)." in wrong.split('id="id_retry.longest_delay_error"')[1]
    assert "U+0000 cannot be stored" in browse.post(page, {**sent, "region": "\0"}).content.decode()
    assert browse.post(page, sent).status_code == 302
    first, second = calls.versions.order_by("number")
    assert (second.author, second.body["region"]) == ("ada", "us")
    assert "This policy was changed meanwhile." in browse.post(page, {**sent, "region": "eu"}).content.decode()
    assert "Roll back" in browse.get(f"/admin/calls/callpolicyversion/{first.pk}/change/").content.decode()
    activate = f"/admin/calls/callpolicyversion/{first.pk}/activate/"
    dialog = browse.get(activate).content.decode()
    assert "From version 2 to version 1 of mail/send" in dialog
    assert "The next call obeys it." in dialog
    told = {"_form_submitted": "on", "expected": "2", "reason": "no"}
    assert browse.post(activate, told).headers["HX-Redirect"] == page
    assert calls.policies.find("mail", "send").active == first


def test_its_list_says_who_changed_each_last(calls: Any, browse: Client) -> None:
    calls.policies.write("mail", "send", body={}, by="grace", reason="x")
    calls.policies.write("mail", "send", body={"region": "us"}, by="grace", reason="x")
    calls.policies.activate("mail", "send", number=1, by="mary", reason="back")
    rows = browse.get(f"{START}?q=mail").content.decode().split('id="result_list"')[1]
    assert "mary" in rows
    assert "grace" not in rows
    versions = browse.get("/admin/calls/callpolicyversion/").content.decode()
    assert "mail/send v2" in versions

"""Console sessions end when nobody uses them, and passwords are long."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

pytestmark = [pytest.mark.django_db, pytest.mark.once]

IDLE = timedelta(hours=1)


@pytest.fixture
def person(client: Client, administrator: User) -> Client:
    """Somebody who has logged in on the login page."""
    form = {"username": administrator.username, "password": "correct horse"}
    assert client.post("/admin/login/?next=/admin/", form).status_code == 302
    return client


def left() -> timedelta:
    return Session.objects.get().expire_date - timezone.now()


def let_pass() -> None:
    """As if the last use were nearly an hour ago."""
    Session.objects.update(expire_date=timezone.now() + timedelta(minutes=1))


def test_a_session_that_nobody_uses_ends_after_an_hour(person: Client) -> None:
    assert left() <= IDLE
    Session.objects.update(expire_date=timezone.now())
    answer = person.get("/admin/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/login/?next=/admin/")


def test_a_session_in_use_lives_on(person: Client) -> None:
    let_pass()
    assert person.get("/admin/access/auditentry/").status_code == 200
    assert left() > IDLE - timedelta(minutes=5)
    assert person.cookies["sessionid"]["max-age"] == IDLE.total_seconds()


def test_a_page_that_refreshes_itself_is_no_use_of_a_session(person: Client) -> None:
    let_pass()
    for address in ("/admin/live/", "/admin/engines/pipeline/"):
        assert person.get(address, headers={"X-Ergon-Refresh": "1"}).status_code == 200
    assert left() <= timedelta(minutes=1)


def test_a_session_in_use_is_not_written_with_every_request(person: Client) -> None:
    written = timezone.now() + IDLE - timedelta(seconds=5)
    Session.objects.update(expire_date=written)
    person.get("/admin/access/auditentry/")
    assert Session.objects.get().expire_date == written


@pytest.mark.parametrize(("password", "is_taken"), [("correct-hrs", False), ("correct-hors", True)])
def test_a_password_has_twelve_characters_at_least(browse: Client, password: str, *, is_taken: bool) -> None:
    form = {"username": "bob", "usable_password": "true", "password1": password, "password2": password}
    browse.post("/admin/auth/user/add/", form)
    assert User.objects.filter(username="bob").exists() is is_taken

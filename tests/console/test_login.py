"""Passwords cannot be guessed at the login of the console."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from ergon_site.access import logins
from ergon_site.access.models import FailedLogins
from tests.processes import Site, serve

LOGIN = "/admin/login/"
RIGHT, WRONG = "correct horse", "battery staple"
ALLOWED = 10
FEW = 4  # a server takes half a second of computing for each wrong password


def attempt(password: str, account: str = "ada", address: str = "192.0.2.7", forwarded: str = "") -> str:
    """What an attempt leads to."""
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    answer = Client(REMOTE_ADDR=address).post(LOGIN, {"username": account, "password": password}, headers=headers)
    if answer.status_code == 302:
        return "in"
    return "refused" if "Too many failed logins" in answer.content.decode() else "wrong"


def attempts(count: int, password: str = WRONG, **of: str) -> list[str]:
    return [attempt(password, **of) for _ in range(count)]


@pytest.mark.django_db
def test_after_too_many_failures_even_the_right_password_is_refused(administrator: User) -> None:
    assert attempts(ALLOWED) == ["wrong"] * ALLOWED
    assert attempts(50) == ["refused"] * 50
    assert attempt(RIGHT) == "refused"
    # Another person, and the same one at another address, are not locked out with them.
    User.objects.create_superuser("bob", password=RIGHT)
    assert (attempt(RIGHT, account="bob"), attempt(RIGHT, address="192.0.2.8")) == ("in", "in")


@pytest.mark.django_db
def test_a_lock_ends_by_itself_and_a_login_forgets_the_failures_before_it(administrator: User) -> None:
    attempts(ALLOWED + 1)
    assert attempt(RIGHT) == "refused"
    FailedLogins.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    assert attempt(RIGHT) == "in"
    assert attempts(ALLOWED - 1) == ["wrong"] * (ALLOWED - 1)
    assert attempt(RIGHT) == "in"
    assert attempts(ALLOWED) == ["wrong"] * ALLOWED


@pytest.mark.django_db
@pytest.mark.once
def test_the_old_password_cannot_be_guessed_where_it_is_changed(browse: Client) -> None:
    new = {"new_password1": "a longer password", "new_password2": "a longer password"}
    told = [browse.post("/admin/password_change/", {"old_password": WRONG, **new}) for _ in range(ALLOWED + 1)]
    assert ["Too many failed logins" in answer.content.decode() for answer in told] == [False] * ALLOWED + [True]
    assert browse.post("/admin/password_change/", {"old_password": RIGHT, **new}).status_code == 200
    FailedLogins.objects.all().delete()
    changed = browse.post("/admin/password_change/", {"old_password": RIGHT, **new})
    assert (changed.status_code, changed["Location"]) == (302, "/admin/password_change/done/")


@pytest.mark.django_db
@pytest.mark.once
@pytest.mark.parametrize("standing", [{"is_staff": False}, {"is_active": False}, {}])
def test_a_failed_login_says_so_in_plain_words_and_not_which_accounts_there_are(standing: dict[str, bool]) -> None:
    User.objects.create_user("ada", password=RIGHT, is_staff=True)
    User.objects.update(**standing)
    sent = {"username": "ada", "password": RIGHT if standing else WRONG}
    page = Client().post(LOGIN, sent).content.decode()
    assert page.count("Wrong username or password.") == 1
    assert not re.search("(?i)please|staff account|case-sensitive", page)


@pytest.mark.django_db
@pytest.mark.once
def test_who_is_logged_in_without_access_to_the_console_is_told(client: Client) -> None:
    client.force_login(User.objects.create_user("bob"))
    page = client.get(LOGIN).content.decode()
    assert "You are logged in as bob, who has no access to the console." in page


@pytest.mark.django_db
@pytest.mark.once
def test_forms_of_passwords_speak_plainly(browse: Client, administrator: User) -> None:
    sent = {"old_password": WRONG, "new_password1": "a longer password", "new_password2": "another password"}
    pages = [
        browse.get("/admin/password_change/"),
        browse.post("/admin/password_change/", sent),
        browse.get("/admin/auth/user/add/"),
        browse.get(f"/admin/auth/user/{administrator.pk}/change/"),
        browse.get(f"/admin/auth/user/{administrator.pk}/password/"),
        browse.post(f"/admin/auth/user/{administrator.pk}/password/", {"password1": "one", "password2": "two"}),
    ]
    words = "".join(page.content.decode() for page in pages)
    for said in (
        "The old password is wrong.",
        "The two passwords are not the same.",
        "Not saved. Correct the marked f",
    ):
        assert said in words
    assert not re.search("(?i)please|for verification|security.s sake|raw passwords|algorithm|authenticat", words)


@pytest.mark.django_db
@pytest.mark.once
def test_an_account_is_locked_whichever_address_guesses(administrator: User) -> None:
    told = [attempt(WRONG, address=f"192.0.2.{number}") for number in range(5 * ALLOWED)]
    assert set(told) == {"wrong"}
    assert attempt(RIGHT, address="198.51.100.1") == "refused"


@pytest.mark.django_db
@pytest.mark.once
def test_an_address_is_locked_whichever_account_it_guesses(administrator: User) -> None:
    assert {attempt(WRONG, account=f"person-{number}") for number in range(10 * ALLOWED)} == {"wrong"}
    assert attempt(RIGHT) == "refused"
    assert attempt(RIGHT, forwarded="198.51.100.1") == "refused"
    assert attempt(RIGHT, address="198.51.100.1") == "in"


@pytest.mark.django_db
@pytest.mark.once
def test_behind_a_trusted_proxy_people_are_told_apart(administrator: User, settings: Settings) -> None:
    settings.ERGON_TRUSTED_PROXIES = (ip_network("10.0.0.1"),)
    settings.ERGON_LOGIN_FAILURES = 2
    attempts(3, address="10.0.0.1", forwarded="192.0.2.7")
    assert attempt(RIGHT, address="10.0.0.1", forwarded="192.0.2.7") == "refused"
    assert attempt(RIGHT, address="10.0.0.1", forwarded="198.51.100.1, 192.0.2.7") == "refused"
    assert attempt(RIGHT, address="10.0.0.1", forwarded="192.0.2.8") == "in"


@pytest.mark.django_db
@pytest.mark.once
def test_failures_are_logged_with_account_and_address_and_without_the_password(
    administrator: User, settings: Settings, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    settings.ERGON_LOGIN_FAILURES = 1
    attempts(2)
    told = capsys.readouterr().err + caplog.text
    for event in ("login_failed", "login_refused"):
        line = next(line for line in told.splitlines() if event in line)
        assert "ada" in line
        assert "192.0.2.7" in line
    assert WRONG not in told


@pytest.mark.django_db
def test_failures_are_forgotten_when_their_time_is_over(administrator: User) -> None:
    attempts(2)
    assert (FailedLogins.objects.count(), logins.forget()) == (3, 0)
    FailedLogins.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    assert (logins.forget(), FailedLogins.objects.count()) == (3, 0)


@pytest.fixture
def sites(transactional_db: None, tmp_path: Path) -> Iterator[list[Site]]:
    """Two web servers over one database."""
    with ExitStack() as stack:
        yield [stack.enter_context(serve(ERGON_LOGIN_FAILURES=str(FEW))) for _ in range(2)]


def post(site: Site, password: str) -> str:
    with httpx.Client(base_url=site.url, timeout=60) as client:
        page = client.get(LOGIN).text
        secret = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[0]
        form = {"username": "ada", "password": password, "csrfmiddlewaretoken": secret}
        answer = client.post(LOGIN, data=form, headers={"Referer": site.url})
    if answer.status_code == 302:
        return "in"
    return "refused" if "Too many failed logins" in answer.text else "wrong"


def test_processes_count_together_and_attempts_at_the_same_time_as_well(sites: list[Site]) -> None:
    User.objects.create_superuser("ada", password=RIGHT)
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda number: post(sites[number % 2], WRONG), range(2 * FEW)))
    assert (told.count("wrong"), told.count("refused")) == (FEW, FEW)
    assert [post(site, RIGHT) for site in sites] == ["refused", "refused"]

"""What every test may ask for."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import Group, User
from django.db import connection
from django.template import Template
from django.test import Client, TransactionTestCase
from django.test.utils import _TestState
from django.utils import timezone
from pytest_django import DjangoDbBlocker

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from ergon_site.access.database import clock
from facts import ledger
from providers import active_policy
from providers.calls.rating import board
from providers.conf import settings as provider_settings
from providers.core import exchange
from tests import database
from tests.processes import LIMIT, Site, serve

# Enough examples to find what there is to find; how long one takes says nothing on a busy machine.
hypothesis.settings.register_profile("suite", max_examples=30, deadline=None)
hypothesis.settings.load_profile("suite")

# A shell lets what it starts in the background ignore Ctrl-C, and all that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    database.choose_file(Path(settings.ERGON_DATA_DIR))
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--template"):
            patch.setattr(connection.creation, "create_test_db", database.take_over)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock():
        database.remember()
        database.keep_copy()
    yield
    ledger.release_connection()
    board.release_connection()
    with django_db_blocker.unblock():
        database.drop_copy()


@pytest.fixture(scope="session", autouse=True)
def _brisk_and_clean(django_test_environment: None) -> Iterator[None]:
    """Passwords are hashed quickly (a server verifies them all the same), and cleaning knows append-only tables.

    The next test goes on with the connection, as one that rolls back does: a new one must learn the whole schema first.
    Static files are looked for when they are asked for; else each test's client would list them all beforehand. What
    each part of a page was made from is not kept. A machine may stand still for longer than a provider's call lets the
    database answer.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "WHITENOISE_AUTOREFRESH", True, raising=False)
        patch.setattr(Template, "_render", _TestState.saved_data.template_render)  # type: ignore[attr-defined]
        patch.setattr(PBKDF2PasswordHasher, "iterations", 1)
        patch.setattr(TransactionTestCase, "_fixture_teardown", database.clean)
        patch.setattr(TransactionTestCase, "_should_reload_connections", lambda _case: False)
        patch.setattr(exchange, "MOST", LIMIT)
        yield


@pytest.fixture(autouse=True)
def _nothing_remembered() -> None:
    """What the process or its data folder knows of providers is of rows that are gone with the test before.

    Once a minute a page asks for the database's time: never in the middle of a test that counts statements.
    """
    clock.note(timezone.now())
    active_policy.forget_all()
    provider_settings().journal.unlink(missing_ok=True)


@pytest.fixture
def administrator(db: None) -> User:
    return User.objects.create_superuser("ada", password="correct horse")


@pytest.fixture
def hire(db: None) -> Callable[[str], User]:
    """Makes a person with a role."""

    def make(role: str) -> User:
        person = User.objects.create_user(role.replace(" ", "-"), password="correct horse", is_staff=True)
        person.groups.set(Group.objects.filter(name=role))
        return person

    return make


@pytest.fixture
def browse(client: Client, administrator: User) -> Client:
    """The console, logged in as a superuser."""
    client.force_login(administrator)
    return client


@pytest.fixture
def token(db: None) -> str:
    """The token of a client that may do everything."""
    from ergon_site.access.core.scopes import SCOPES

    return clients.create("everything", Grant(scopes=list(SCOPES)), by="tests").token.text


@pytest.fixture(scope="session")
def site_process(django_db_setup: None) -> Iterator[Site]:
    """The real web server on the test database."""
    with serve() as site:
        yield site


@pytest.fixture
def site(site_process: Site, transactional_db: None) -> Site:
    return site_process


@pytest.fixture
def _signals() -> Iterator[None]:
    """A supervisor takes the orders of its process; the tests want them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)

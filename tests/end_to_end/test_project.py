"""Ergon in a Django project of somebody else: the page about it, followed from the wheel on both databases."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.db.utils import ConnectionHandler
from pytest_django import DjangoDbBlocker

from engines import checks as engine_checks
from ergon_site import settings as site
from ergon_site.access import checks
from ergon_site.access.conf import data_folder
from facts import apps as facts_checks
from tests import warm
from tests.database import another, empty
from tests.guides import Block, blocks
from tests.installation import Installation, environment
from tests.processes import PIPES, ROOT, ended

PAGE = ROOT / "docs/how-to/add-to-a-project.md"
LOOK = """
import json, os
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client

assert str(connection.settings_dict["NAME"]) in os.environ["DATABASE_URL"]

User = get_user_model()
if not User.objects.exists():
    User.objects.create_superuser("ada", password="correct horse")
client = Client(raise_request_exception=False, headers={"host": "localhost"})
client.force_login(User.objects.get())
found = {}
for address in addresses:
    answer = client.get(address)
    found[address] = [answer.status_code, answer.content.decode()]
counts = []
if apps.is_installed("shop"):
    import engines
    from engines.models import TransactionRecord
    from shop.models import Order

    assert "site-packages" in engines.__file__, "from the wheel"
    counts = [Order.objects.count(), Order.objects.filter(is_confirmed=True).count(), TransactionRecord.objects.count()]
print(json.dumps([found, counts]))
"""
DATABASE = """
import os
from ergon_site.databases import database

# As a project names its database, without what Ergon's own settings add.
DATABASES["default"] = database(os.environ["DATABASE_URL"]) | {"OPTIONS": {}}
"""
OWN_ADMIN = """
from django.contrib import admin
from shop.models import Order

admin.site.register(Order)
"""
OWN_USERS = """
from django.contrib.auth.models import AbstractUser


class User(AbstractUser):
    pass
"""
OWN_PAGES = ("/admin/", "/admin/auth/user/add/", "/admin/auth/group/add/", "/admin/password_change/")
CONSOLE_PAGES = ("/ergon/admin/", "/ergon/admin/engines/transactionrecord/", "/ergon/admin/engines/pipeline/")
COMPARE = """
import engines.conf, facts.conf, providers.conf, ergon_site.access.conf as access
from ergon_site import settings

own = access.DEFAULTS | engines.conf.DEFAULTS | facts.conf.DEFAULTS | providers.conf.DEFAULTS
del own["ERGON_RELEASE"]  # of a project's code, the version of Ergon says nothing
read = {name: getattr(settings, name) for name in own if hasattr(settings, name)}
print(len(read), {name: value for name, value in read.items() if value != own[name]})
"""
WITHOUT_MESSAGES = [name for name in site.INSTALLED_APPS if name != "django.contrib.messages"]
WITHOUT_STATIC_FILES = [name for name in site.INSTALLED_APPS if "static" not in name]
THEME_FIRST = [name.replace("ergon_site.apps.ConsoleConfig", "django.contrib.admin") for name in site.INSTALLED_APPS]


class Project:
    """A project that was made as the page says, and the reader's shell in it."""

    def __init__(self, ergon: Installation, folder: Path, database: str) -> None:
        self.ergon, self.folder, self.variables = ergon, folder, {"DATABASE_URL": database}
        self.loaded: warm.Loaded | None = None
        self.counts: list[int] = []  # orders, confirmed ones, and transactions
        self.append("mysite/settings.py", DATABASE)

    def load(self, settings: str = "mysite.settings") -> None:
        """Load the project once for all commands from now on, each of which would do so: nothing of it changes."""
        self.loaded = warm.Loaded(self.folder, self.ergon.program("python"), settings)

    def ended(self, *words: str) -> subprocess.CompletedProcess[str]:
        if not self.loaded:
            return self.ergon.run(self.folder, *words, **self.variables)
        argv = words[1:] if words[0] == "python" else [self.ergon.program(words[0]), *words[1:]]
        return ended(warm.start_python(argv, environment(**self.variables), self.loaded, **PIPES))

    def run(self, *words: str) -> str:
        done = self.ended(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    def manage(self, *words: str) -> str:
        return self.run("python", "manage.py", *words)

    def append(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(f"\n{text}")

    def follow(self, block: Block) -> None:
        if block.saved_as:
            (self.folder / block.saved_as).write_text(block.text)
        elif named := re.search(r"Append to `([^`]+)`", block.before):
            self.append(named[1], block.text)

    def look(self, *addresses: str) -> dict[str, tuple[int, str]]:
        """What pages of the project answer to its superuser, and how much there is then."""
        (self.folder / "look.py").write_text(LOOK)
        told = self.manage("shell", "-v0", "-c", f"addresses = {list(addresses)!r}; exec(open('look.py').read())")
        pages, self.counts = json.loads(told.splitlines()[-1])
        return {name: (status, page) for name, (status, page) in pages.items()}


@pytest.fixture(scope="module")
def begun(ergon: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an app, as Django makes them."""
    parent = tmp_path_factory.mktemp("begun")
    ergon.done(parent, "python", "-m", "django", "startproject", "mysite")
    ergon.done(parent / "mysite", "python", "manage.py", "startapp", "shop")
    return parent / "mysite"


@pytest.fixture
def folder(begun: Path, tmp_path: Path) -> Path:
    return shutil.copytree(begun, tmp_path / "mysite")


@pytest.fixture
def project(ergon: Installation, folder: Path, tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Project]:
    with django_db_blocker.unblock(), empty(tmp_path) as address:
        yield Project(ergon, folder, address)


@pytest.fixture
def migrated_project(ergon: Installation, folder: Path, tmp_path: Path, django_db_setup: None) -> Iterator[Project]:
    with another(tmp_path) as address:
        yield Project(ergon, folder, address)


def steps(since: str, until: str) -> list[Block]:
    """The blocks of the page from the one that holds a text to the one that holds another."""
    found = blocks(PAGE)
    (first,) = (number for number, block in enumerate(found) if since in block.text)
    (last,) = (number for number, block in enumerate(found) if until in block.text)
    return found[first : last + 1]


def own_admin(pages: dict[str, tuple[int, str]]) -> list[str]:
    """The lines of the pages of the project's admin, without what is new in each answer and choices that are rows."""
    text = "".join(pages[address][1] for address in OWN_PAGES)
    lines = re.sub(r'value="\w{64}"|<option value="\d+">.*</option>', "", text).splitlines()
    return [line for line in lines if line.strip()]


@pytest.mark.django_db(transaction=True)
def test_a_project_takes_ergon_in_as_the_page_says_and_its_own_pages_stay_as_they_were(project: Project) -> None:
    project.manage("migrate", "-v0")
    before = own_admin(project.look(*OWN_PAGES))
    *changes, commands = steps('"unfold.apps', "makemigrations shop")
    for block in changes:
        project.follow(block)
    first, *preparing, consuming = (line.split()[2:] for line in commands.text.splitlines())
    project.manage(*first)
    project.load()
    for words in preparing:
        project.manage(*words)
    answers = project.look("/place/?item=hammer", "/place/?item=nothing")
    assert [status for status, _ in answers.values()] == [200, 500]
    assert project.counts == [1, 0, 1], "an order is kept with its transaction, or neither is"
    assert "1 succeeded" in project.manage(*consuming)
    assert "no problems found" in project.manage("doctor")
    for words in (["pipeline"], ["pipeline", "create"], ["consume", "--limit", "x"], ["create_api_client"]):
        refused = project.ended("python", "manage.py", *words)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
    project.variables |= {"DJANGO_SETTINGS_MODULE": "mysite.settings", "PYTHONPATH": "."}
    assert "orders" in project.run("ergon", "status")
    answers = project.look(*OWN_PAGES, *CONSOLE_PAGES, "/ergon/api/v1/transactions")
    assert project.counts == [1, 1, 1]
    assert list(unified_diff(before, own_admin(answers))) == []
    for address in CONSOLE_PAGES:
        status, page = answers[address]
        assert status == 200
        assert "ergon/console.css" in page
        assert "unfold" in page
    status, problem = answers["/ergon/api/v1/transactions"]
    assert (status, json.loads(problem)["code"]) == (401, "unauthenticated"), "a session is no token"


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_a_project_may_have_facts_and_providers_as_well(project: Project) -> None:
    *changes, more = steps('"unfold.apps', "drf_spectacular")
    for block in changes:
        project.follow(block)
    project.append("mysite/settings.py", more.text)
    project.manage("makemigrations", "shop", "-v0")
    project.manage("migrate", "-v0")
    addresses = ["/ergon/admin/", "/ergon/admin/providers/gate/", "/ergon/admin/facts/boundary/"]
    answers = project.look(*addresses, "/ergon/api/docs/", "/ergon/api/schema/?format=json")
    assert {status for status, _ in answers.values()} == {200}
    assert "/ergon/api/v1/facts" in json.loads(answers["/ergon/api/schema/?format=json"][1])["paths"]
    assert "API reference" in answers["/ergon/admin/"][1]


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_apps_of_a_project_run_on_ergons_settings(migrated_project: Project) -> None:
    project = migrated_project
    for block in [
        *steps("import engines", "def place"),
        *steps("ergon_site.settings import", "ergon_site.urls import"),
    ]:
        project.follow(block)
    (project.folder / "shop" / "admin.py").write_text(OWN_ADMIN)
    (commands,) = steps("ergon pipeline create", "ergon pipeline create")
    exported, *preparing, consuming = commands.text.splitlines()
    project.variables |= dict(word.split("=") for word in exported.split()[1:])
    project.manage("makemigrations", "shop", "-v0")
    project.load(project.variables["DJANGO_SETTINGS_MODULE"])
    for line in preparing:
        project.run(*line.split())
    answers = project.look("/place/?item=hammer", "/place/?item=nothing")
    assert [status for status, _ in answers.values()] == [200, 500]
    assert project.counts == [1, 0, 1]
    assert "1 succeeded" in project.run(*consuming.split())
    answers = project.look("/admin/", "/admin/shop/order/")
    assert project.counts == [1, 1, 1]
    assert {status for status, _ in answers.values()} == {200}
    assert '"/admin/shop/order/"' in answers["/admin/"][1], "a page of the project is in the menu"


@pytest.mark.once
def test_no_process_starts_with_settings_that_cannot_work(project: Project) -> None:
    (apps,) = steps('"unfold.apps', '"unfold.apps')
    project.append("mysite/settings.py", f"{apps.text}USE_TZ = False\nERGON_LEASE_SECONDS = 0")
    for command in ("consume", "maintain"):
        refused = project.ended("python", "manage.py", command)
        assert refused.returncode == 1
        assert "(ergon.E005) USE_TZ is False" in refused.stderr
        assert "ERGON_LEASE_SECONDS must be a number above 0, not 0." in refused.stderr


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_a_project_may_have_users_of_its_own(project: Project) -> None:
    project.manage("startapp", "people")
    (project.folder / "people" / "models.py").write_text(OWN_USERS)
    apps, addresses = steps('"unfold.apps', 'include("ergon_site.urls")')
    project.append("mysite/settings.py", apps.text.replace("shop", "people") + 'AUTH_USER_MODEL = "people.User"')
    project.follow(addresses)
    project.manage("makemigrations", "people", "-v0")
    project.load()
    project.manage("migrate", "-v0")
    assert {status for status, _ in project.look(*CONSOLE_PAGES, "/ergon/admin/access/role/").values()} == {200}


@pytest.mark.once
def test_an_app_without_what_it_needs_does_not_start_and_says_so(project: Project) -> None:
    project.append("mysite/settings.py", 'INSTALLED_APPS += ["engines"]')
    refused = project.ended("python", "manage.py", "check")
    assert refused.returncode
    assert refused.stderr.endswith("ImproperlyConfigured: 'engines' needs 'ergon_site.access' in INSTALLED_APPS.\n")


@pytest.mark.once
@pytest.mark.parametrize(
    ("check", "name", "value", "words"),
    [
        (engine_checks.check_settings, "ERGON_LEASE_SECONDS", "x", "must be a number above 0, not 'x'."),
        (engine_checks.check_settings, "ERGON_LEASE_SECONDS", 0, "must be a number above 0, not 0."),
        (engine_checks.check_settings, "ERGON_PAYLOAD_LIMIT", 0.5, "must be a whole number above 0, not 0.5."),
        (engine_checks.check_settings, "ERGON_CONCURRENCY", "4", "must be a whole number above 0, not '4'."),
        (engine_checks.check_settings, "ERGON_TIMEOUT", -1, "must be a number above 0, not -1."),
        (engine_checks.check_settings, "ERGON_GRACE", True, "must be a number of at least 0, not True."),
        (engine_checks.check_settings, "ERGON_DRAIN", "yes", "must be True or False, not 'yes'."),
        (engine_checks.check_settings, "ERGON_TASKS", "shop", "must be a list, not str."),
        (engine_checks.check_settings, "ERGON_SERVICES", [], "must be a dictionary, not list."),
        (engine_checks.check_settings, "ERGON_EXECUTORS", {"py": {}}, "the executor 'py'"),
        (engine_checks.check_tasks, "ERGON_TASKS", ["shop.nowhere"], "a module that is not there: 'shop.nowhere'."),
        (checks.check_project, "ERGON_CERTIFICATE_HEADER", None, "must be a text, not None."),
        (checks.check_project, "USE_TZ", False, "USE_TZ is False: no outcome could be kept"),
        (checks.check_project, "ERGON_TRUSTED_PROXIES", ["10.0.0.1", "proxy"], "': 'proxy' does not appear"),
        (checks.check_project, "ERGON_CERTIFICATE_HEADER", "ErgonCertificate", "needs ERGON_TRUSTED_PROXIES: anybody"),
        (facts_checks.check_settings, "ERGON_PEERS", "https://ada:secret@plant.example", "must be a list, not str."),
        (facts_checks.check_settings, "ERGON_PEERS", ["plant.example"], "ERGON_PEERS must be addresses such as"),
        (facts_checks.check_settings, "ERGON_FACT_LIMITS", {"envelope": -1}, "ERGON_FACT_LIMITS "),
        (
            checks.check_console,
            "INSTALLED_APPS",
            WITHOUT_MESSAGES,
            "lacks 'django.contrib.messages', which",
        ),
        (checks.check_console, "INSTALLED_APPS", WITHOUT_STATIC_FILES, "has no styles and scripts without"),
        (checks.check_console, "INSTALLED_APPS", THEME_FIRST, "to the pages of the project's own admin"),
        (checks.check_reference, "REST_FRAMEWORK", {}, "The API reference cannot be made"),
    ],
)
def test_checks_say_in_words_what_is_missing_or_wrong(
    settings: Any, check: Callable[[], list[CheckMessage]], name: str, value: Any, words: str
) -> None:
    assert check() == []
    setattr(settings, name, value)
    (message,) = check()
    assert words in message.msg


@pytest.mark.once
@pytest.mark.django_db
def test_other_databases_of_a_project_are_left_as_they_are() -> None:
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    databases: Any = ConnectionHandler({"default": memory, "other": {**memory}})
    for database in databases.all():
        database.ensure_connection()
    assert {one.alias: one.transaction_mode for one in databases.all()} == {"default": "IMMEDIATE", "other": None}
    databases.close_all()


@pytest.mark.once
def test_a_folder_for_data_is_a_setting_of_ergons_own_name(settings: Any, tmp_path: Path) -> None:
    settings.ERGON_DATA_DIR, settings.DATA_DIR = str(tmp_path), "/somewhere/of/the/project"
    assert data_folder() == tmp_path


@pytest.mark.once
def test_apps_have_the_defaults_that_ergons_own_settings_have(tmp_path: Path) -> None:
    clean = {
        "PATH": os.environ["PATH"],
        "ERGON_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "ergon_site.settings",
    }
    command = [sys.executable, "-c", COMPARE]
    told = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, check=True).stdout
    count, _, different = told.partition(" ")
    assert int(count) > 20
    assert different == "{}\n"

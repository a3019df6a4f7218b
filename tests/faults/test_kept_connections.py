"""SQLite: each thread of the web process keeps its connection, until the file is another one."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.db import connection, transaction

from engines.worker.connections import SharedConnections
from providers.database import sql
from tests.facts.deployments import Deployment, deployment
from tests.facts.drafts import OFFICE, PLANT, draft
from tests.processes import LIMIT, Site, serve

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Deployment]:
    with deployment(tmp_path / "plant") as made:
        yield made


@pytest.fixture
def token(plant: Deployment) -> str:
    *_, told = plant.commands(
        ["zone", "create", PLANT],
        ["zone", "create", OFFICE],
        ["boundary", "create", PLANT, OFFICE],
        ["create_api_client", "mes", "--zone", PLANT, "--target-zone", OFFICE],
    )
    return told.strip()


def file_of(plant: Deployment) -> Path:
    return Path(plant.variables["DATABASE_URL"].removeprefix("sqlite:///"))


def opened(site: Site, file: Path) -> list[int]:
    """The descriptors that the web server has on the database between requests."""
    found = [one for process in site.processes() for one in process.open_files()]
    return sorted(one.fd for one in found if one.path == str(file))


def append(api: httpx.Client, number: int) -> int:
    answer = api.post("/api/v1/facts", json=draft(number))
    assert answer.status_code == 201, answer.text
    offset: int = answer.json()["offset"]
    return offset


def test_the_connection_outlives_the_request(plant: Deployment, token: str) -> None:
    assert connection.vendor == "sqlite"
    headers = {"Authorization": f"Bearer {token}"}
    with serve(None, "1", **plant.variables) as site, httpx.Client(headers=headers, timeout=LIMIT) as api:
        api.base_url = site.url
        append(api, 1)
        before = opened(site, file_of(plant))
        assert before
        for number in range(2, 6):
            append(api, number)
            assert opened(site, file_of(plant)) == before


def test_a_database_file_that_is_replaced_is_opened_anew(plant: Deployment, token: str, tmp_path: Path) -> None:
    """Otherwise facts would be confirmed that are in a file that nobody will open again."""
    headers = {"Authorization": f"Bearer {token}"}
    file = file_of(plant)
    shutil.copy(file, tmp_path / "backup")
    with serve(None, "1", **plant.variables) as site, httpx.Client(headers=headers, timeout=LIMIT) as api:
        api.base_url = site.url
        assert [append(api, number) for number in range(3)] == [0, 1, 2]
        for name in (f"{file}-wal", f"{file}-shm"):
            Path(name).unlink(missing_ok=True)
        os.replace(tmp_path / "backup", file)  # noqa: PTH105 (as a restore does it)
        assert [append(api, number) for number in range(2)] == [0, 1]


def test_a_thread_that_borrows_a_connection_calls_providers_on_that_one() -> None:
    assert not sql.is_in_transaction()
    shared = SharedConnections(1)
    with shared.borrow(), transaction.atomic():
        assert sql.is_in_transaction()
    assert not sql.is_in_transaction()
    shared.close()

"""The statements of the queue on PostgreSQL 15, the oldest that is supported: right, and with good plans."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ergon_site import embedded
from tests.install import OLDEST_POSTGRES
from tests.processes import ROOT

PROVED_THERE = ["test_plans.py", "test_claiming.py"]


@pytest.fixture
def oldest_server() -> Iterator[str]:
    if not Path(OLDEST_POSTGRES).exists():
        message = "needs PostgreSQL 15: install the package postgresql-15"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with TemporaryDirectory(prefix="ergon-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with embedded.postgres(folder, durable=False, binaries=Path(OLDEST_POSTGRES).parent) as address:
            yield address


@pytest.mark.once
def test_claims_and_the_other_hot_statements_are_right_and_quick_on_the_oldest_server(oldest_server: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "--database", "postgresql", "-p", "no:cacheprovider"]
    proved = subprocess.run(
        [*command, *(str(Path(__file__).with_name(name)) for name in PROVED_THERE)],
        cwd=ROOT,
        env={**os.environ, "TEST_DATABASE_URL": oldest_server},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert proved.returncode == 0, proved.stdout[-3000:] + proved.stderr[-1000:]

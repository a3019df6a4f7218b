"""An upgrade while work goes on: processes of the release before run on the new schema until they are replaced."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engines import transactions
from engines.models import Attempt, DeadLetter, Worker
from tests import releases
from tests.durable_transactions import consume, make_policy, states, submit
from tests.factories import make_pipeline
from tests.processes import LIMIT, eventually

pytestmark = pytest.mark.django_db(transaction=True)

TASKS = {"ERGON_TASKS": "tests.tasks"}


def work_on_the_new_schema(commit: str, folder: Path) -> None:
    """Older code submits, consumes and shows; what it leaves, newer code finishes, and the other way round."""
    old = releases.unpack(commit, folder)
    orders = make_pipeline(policy=make_policy())
    from_new = submit(orders, 3)
    lines = "\n".join(json.dumps({"payload": payload}) for payload in [{"return": 1}, {"fail": "no"}])
    from_old = old.manage("submit", "orders", given=lines).split()
    old.manage("consume", "orders", "--drain", "--json", **TASKS)
    assert states(*from_new, *from_old) == [*["succeeded"] * 4, "failed"]
    assert (Worker.objects.count(), Attempt.objects.count(), DeadLetter.objects.count()) == (1, 5, 1)
    told = json.loads(old.manage("status", "--json"))
    assert (told["pipelines"][0]["succeeded"], told["dead_letters"]["open"]) == (4, 1)
    later = old.manage("submit", "orders", given='{"payload": {"return": 2}}').split()
    assert consume("orders", "--drain").code == 0
    assert states(*later) == ["succeeded"]


def test_a_worker_of_the_release_before_goes_on_after_the_schema_is_migrated(tmp_path: Path) -> None:
    work_on_the_new_schema(releases.before_newest_migration(), tmp_path)


def test_a_request_to_cancel_does_not_disturb_a_worker_of_the_release_before(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    old, gate = releases.unpack(releases.before_newest_migration(), code), tmp_path / "gate"
    orders = make_pipeline(policy=make_policy())
    (done,), (failed,) = submit(orders, until=str(gate)), submit(orders, until=str(gate), fail_without="/nowhere")
    with ThreadPoolExecutor(1) as pool:
        consuming = pool.submit(old.manage, "consume", "orders", "--drain", **TASKS)
        try:
            eventually(lambda: states(done, failed) == ["running", "running"], "they run")
            for uid in (done, failed):
                transactions.cancel(uid, by="ada", reason="ordered twice")
        finally:
            gate.touch()
        consuming.result(LIMIT)
    assert states(done, failed) == ["succeeded", "failed"]
    assert DeadLetter.objects.get().uid == failed


@pytest.mark.soak
@pytest.mark.parametrize("steps", range(12))
def test_workers_of_many_releases_ago_go_on_after_the_schema_is_migrated(steps: int, tmp_path: Path) -> None:
    known = releases.before_each_migration()
    if steps >= len(known):
        pytest.skip("there were not so many")
    work_on_the_new_schema(known[steps], tmp_path)

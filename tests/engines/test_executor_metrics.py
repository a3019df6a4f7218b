"""Jobs of executors are counted by how they came out."""

from typing import Any

import pytest

from engines import telemetry
from engines.core.errors import ExceptionType, RetryLater
from engines.drivers.timeouts import Killed
from engines.executors.task import JobFailed, JobRefused, count_job, outcome_of

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RetryLater("not yet"), "retry"),
        (Killed(), "killed"),
        (JobRefused("who?", error_type="handler_not_found"), "refused"),
        (JobFailed("exited", error_type="ExecutorDied"), "died"),
        (JobFailed("no such program", error_type="ExecutorStartError"), "died"),
        (JobFailed("slow", ExceptionType.TIMEOUT, error_type="timeout"), "timeout"),
        (JobFailed("no", error_type="ValueError"), "error"),
        (RuntimeError("a fault of this side"), "error"),
    ],
)
def test_every_end_of_a_job_has_a_word(error: BaseException, outcome: str) -> None:
    assert outcome_of(error) == outcome


@pytest.mark.parametrize(
    ("payload", "executor"),
    [
        ({"function": "echo"}, "python"),
        ({"function": "node#echo"}, "node"),
        ({"function": "made-up#echo"}, "python"),
        ({"function": "node#"}, "python"),
        (None, "python"),
    ],
)
def test_a_job_counts_for_its_executor_and_names_from_payloads_are_no_labels(
    payload: Any, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, dict[str, str]]] = []

    class Heard:
        def add(self, count: int, attributes: dict[str, str]) -> None:
            heard.append((count, attributes))

    monkeypatch.setattr(telemetry, "executor_jobs", Heard())
    count_job(payload, "success", executor="python", known={"python", "node"})
    assert heard == [(1, {telemetry.EXECUTOR: executor, telemetry.OUTCOME: "success"})]

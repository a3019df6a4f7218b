"""Policies for common kinds of work, as values to begin with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Named values of a policy; `work` in a path stands for the step of the work, process or produce."""

    name: str
    title: str
    meaning: str
    values: Mapping[str, Any]

    def body(self, kind: str) -> dict[str, Any]:
        """The values by their paths in a policy of this kind."""
        step = "process" if kind == "consumer" else "produce"
        return {path.replace("work.", f"steps.{step}.retry."): value for path, value in self.values.items()}


PRESETS = (
    Preset(
        name="web-hook",
        title="Web hook",
        meaning="Quick calls to somebody else's server, which may be down for a while.",
        values={
            "work.max_attempts": 8,
            "work.timeout": 10.0,
            "work.backoff": 5.0,
            "work.backoff_multiplier": 3.0,
            "work.backoff_cap": 3600.0,
            "loop.concurrency.value": 16,
            "loop.batch.size": 100,
            "loop.transaction_timeout": None,
        },
    ),
    Preset(
        name="nightly-batch",
        title="Nightly batch",
        meaning="Long jobs that nobody waits for: few at once, and rarely tried again.",
        values={
            "work.max_attempts": 3,
            "work.timeout": 3600.0,
            "work.backoff": 300.0,
            "work.backoff_multiplier": 2.0,
            "work.backoff_cap": 1800.0,
            "loop.concurrency.value": 2,
            "loop.batch.size": 10,
            "loop.transaction_timeout": None,
        },
    ),
    Preset(
        name="flaky-api",
        title="Flaky API",
        meaning="Calls that often fail and mostly work a moment later.",
        values={
            "work.max_attempts": 6,
            "work.timeout": 30.0,
            "work.backoff": 0.5,
            "work.backoff_multiplier": 2.0,
            "work.backoff_cap": 30.0,
            "loop.concurrency.value": 8,
            "loop.batch.size": 100,
            "loop.transaction_timeout": 300.0,
        },
    ),
)

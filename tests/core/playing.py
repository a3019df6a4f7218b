"""Plays the core's generators with scripted answers: no clock, no thread, no task."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engines.core.steps import Step, Steps


@dataclass
class Play:
    """The steps that were asked for, and what came of it all."""

    steps: list[Step]
    result: Any

    def of(self, *kinds: type) -> list[Any]:
        return [step for step in self.steps if isinstance(step, kinds)]

    def names(self, *but: type) -> list[str]:
        return [type(step).__name__ for step in self.steps if not isinstance(step, but)]


def play(steps: Steps[Any], answer: Callable[[Step], Any] | Iterable[Any], *answered: type) -> Play:
    """Answer each step by the function, or each step of the answered kinds by the next of the answers."""
    seen: list[Step] = []
    script = None if callable(answer) else iter(answer)
    reply = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            return Play(seen, end.value)
        seen.append(step)
        if callable(answer):
            reply = answer(step)
        elif script is not None and isinstance(step, answered):
            reply = next(script)
        else:
            reply = None

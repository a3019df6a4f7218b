"""The attempts and delays of a retry policy if every attempt fails."""

from dataclasses import dataclass
from itertools import islice

from engines.core.policy import RetryPolicy
from ergon_site.access.core.durations import exact_span

DRAWN = 8
COUNTED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A pause between two attempts, and how long it is beside the longest one that is drawn."""

    seconds: float
    share: float

    def __str__(self) -> str:
        return exact_span(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPreview:
    """The first attempts and waits, to be drawn, and the whole in words."""

    waits: tuple[Wait, ...]
    not_drawn: int
    sentence: str


def preview(retry: RetryPolicy) -> RetryPreview:
    delays = list(islice(_delays(retry), DRAWN - 1))
    longest = max(delays, default=0.0)
    return RetryPreview(
        waits=tuple(Wait(seconds=delay, share=delay / longest if longest else 0.0) for delay in delays),
        not_drawn=max(0, retry.max_attempts - DRAWN),
        sentence=_sentence(retry),
    )


def _delays(retry: RetryPolicy) -> "map[float]":
    return map(retry.delay, range(retry.max_attempts - 1))


def _sentence(retry: RetryPolicy) -> str:
    limit = f"at most {exact_span(retry.timeout)}" if retry.timeout else "any length"
    if retry.max_attempts == 1:
        return f"One attempt of {limit}, no retries."
    waited = sum(islice(_delays(retry), COUNTED))
    least = "at least " if retry.max_attempts > COUNTED else ""
    counted = f"{retry.max_attempts:,} attempts of {limit}, {least}{exact_span(waited)} of waiting in between."
    if retry.max_attempts > COUNTED:
        return f"{counted} It practically never gives up."
    if retry.timeout is None:
        return f"{counted} The total time depends on how long the attempts take."
    return f"{counted} It gives up after at most {exact_span(waited + retry.max_attempts * retry.timeout)}."

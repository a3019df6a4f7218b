"""The attempts and delays of a retry policy if every attempt fails."""

from dataclasses import dataclass
from itertools import islice

from engines.core.policy import RetryPolicy

DRAWN = 8
COUNTED = 1000
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A pause between two attempts, and how long it is beside the longest one that is drawn."""

    seconds: float
    share: float

    def __str__(self) -> str:
        return span(self.seconds)


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


def span(seconds: float) -> str:
    """A duration in the two units that read best."""
    if seconds >= 100 * YEAR:
        return "forever"
    if seconds >= DAY:
        return f"{seconds // DAY:.0f} d {seconds % DAY // HOUR:.0f} h".removesuffix(" 0 h")
    if seconds >= HOUR:
        return f"{seconds // HOUR:.0f} h {seconds % HOUR // MINUTE:.0f} min".removesuffix(" 0 min")
    if seconds >= MINUTE:
        return f"{seconds // MINUTE:.0f} min {seconds % MINUTE:.3g} s".removesuffix(" 0 s")
    return f"{seconds:.4g} s" if seconds >= 1 or seconds == 0 else f"{seconds * 1000:.4g} ms"


def _delays(retry: RetryPolicy) -> "map[float]":
    return map(retry.delay, range(retry.max_attempts - 1))


def _sentence(retry: RetryPolicy) -> str:
    limit = f"at most {span(retry.timeout)}" if retry.timeout else "any length"
    if retry.max_attempts == 1:
        return f"One attempt of {limit}, no retries."
    waited = sum(islice(_delays(retry), COUNTED))
    least = "at least " if retry.max_attempts > COUNTED else ""
    counted = f"{retry.max_attempts:,} attempts of {limit}, {least}{span(waited)} of waiting in between."
    return f"{counted} {_end(retry, waited)}"


def _end(retry: RetryPolicy, waited: float) -> str:
    if retry.max_attempts > COUNTED:
        return "It practically never gives up."
    if retry.timeout is None:
        return "The total time depends on how long the attempts take."
    return f"It gives up after at most {span(waited + retry.max_attempts * retry.timeout)}."

"""The age of a confirmation, by clocks that do not stand still while the machine is suspended."""

import time
from typing import NamedTuple

# Linux's monotonic clock stops during a suspension; a lease does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Moment(NamedTuple):
    """A point in time on both clocks of this machine."""

    since_boot: float
    wall: float


def now() -> Moment:
    return Moment(since_boot(), time.time())


def since_boot() -> float:
    """Seconds since the machine has started, suspensions included."""
    return time.clock_gettime(_CLOCK)


def age(moment: Moment) -> float:
    """Seconds since then. Where the clocks disagree it is the larger number: a clock set forward makes it older."""
    # Asked before every handler: without a value for the time of now, it takes half as long.
    return max(time.clock_gettime(_CLOCK) - moment[0], time.time() - moment[1])

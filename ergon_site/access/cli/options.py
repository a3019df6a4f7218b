"""Types of command-line options, with errors in words."""

import math
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from datetime import timedelta

from ergon_site.access.core.texts import LONGEST_REASON

MOST_DAYS = 36_500


def add_reason(parser: ArgumentParser, *, required: bool = True) -> None:
    reason = text(LONGEST_REASON)
    parser.add_argument(
        "--reason", required=required, type=reason, metavar="TEXT", help="the reason, recorded in the audit log"
    )


def add_yes(parser: ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where nobody can be asked")


def add_metrics_port(parser: ArgumentParser, *, default: int | None = None) -> None:
    text = "serve /metrics on this port of the loopback address"
    parser.add_argument("--metrics-port", type=whole(1, 65_535), default=default, metavar="PORT", help=text)


def text(most: int) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if not 0 < len(value.strip()) <= most:
            msg = f"must be a text of 1 to {most} characters"
            raise ArgumentTypeError(msg)
        return value.strip()

    return parse


def whole(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"-?\d{1,12}", value, re.ASCII) or not least <= int(value) <= most:
            msg = f"must be a whole number from {least:,} to {most:,}, not {value!r}"
            raise ArgumentTypeError(msg)
        return int(value)

    return parse


def seconds(value: str) -> float:
    return _number(value, sys.float_info.max, "of seconds of at least 0")


def some_seconds(value: str) -> float:
    number = seconds(value)
    if number == 0:
        msg = "must be a number of seconds above 0"
        raise ArgumentTypeError(msg)
    return number


def days(value: str) -> timedelta:
    return timedelta(days=_number(value, MOST_DAYS, f"of days from 0 to {MOST_DAYS:,}"))


def _number(value: str, most: float, what: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        msg = f"must be a number {what}, not {value!r}"
        raise ArgumentTypeError(msg)
    return number

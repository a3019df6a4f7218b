"""Parses list filters from the query string."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.utils import timezone

from engines.core.errors import EngineError, ExceptionType
from engines.core.states import State
from engines.models import Pipeline

AGE = re.compile(r"(under|over)-(\d{1,4})([mhd])")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class ListingError(EngineError):
    """A list that cannot be as asked."""

    code = "invalid_filter"


class Age(NamedTuple):
    """After a time, or before it."""

    is_under: bool
    moment: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The filters of a list of transactions; those not given do not apply."""

    state: State | None = None
    pipeline: Pipeline | None = None
    category: ExceptionType | None = None
    age: Age | None = None
    ended: Age | None = None
    worker: int | None = None
    correlation: str = ""
    text: str = ""

    @property
    def kind(self) -> State | None:
        """The state that is meant: a worker holds only what runs, and only what failed has a category."""
        if self.state is None and self.worker is not None:
            return State.RUNNING
        return State.FAILED if self.state is None and self.category is not None else self.state

    @property
    def is_of_ended_in_one_pipeline(self) -> bool:
        return self.kind is not None and self.kind.is_final and self.pipeline is not None


def parse(asked: Mapping[str, str], pipelines: Iterable[Pipeline]) -> Wanted:
    """The words of an address as values; a word that means nothing is refused."""
    by_name = {pipeline.name: pipeline for pipeline in pipelines}
    try:
        return Wanted(
            state=State[asked["state"].upper()] if "state" in asked else None,
            pipeline=by_name[asked["pipeline"]] if "pipeline" in asked else None,
            category=ExceptionType(asked["category"]) if "category" in asked else None,
            age=_age(asked["age"]) if "age" in asked else None,
            ended=_age(asked["ended"]) if "ended" in asked else None,
            worker=int(asked["worker"]) if "worker" in asked else None,
            correlation=asked.get("correlation", ""),
            text=asked.get("q", "").strip(),
        )
    except (KeyError, ValueError) as error:
        msg = f"unknown filter: {error}"
        raise ListingError(msg) from None


def _age(text: str) -> Age:
    found = AGE.fullmatch(text)
    if found is None:
        msg = f"an age looks like under-1h or over-7d, not {text!r}"
        raise ValueError(msg)
    way, count, unit = found.groups()
    return Age(way == "under", timezone.now() - timedelta(**{UNITS[unit]: int(count)}))

"""What `consume` and `produce` have in common: options, signals, grace, exit codes, several processes."""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.module_loading import import_string

from engines import pipelines
from engines.core.errors import AbandonedAttemptsError, EngineError, LoopTimeout, told
from engines.management.events import EVERY, Told
from engines.management.supervision import Supervisor
from engines.models import Pipeline
from engines.registry import RegistryError
from engines.running import Crew, Options, UnrunnableError

FINISHED, LOOP_ERROR, GIVEN_BACK, ABANDONED, BAD_CONFIGURATION = 0, 1, 3, 4, os.EX_CONFIG


class ServingCommand(BaseCommand):
    """Runs pipelines of one direction until stopped."""

    direction: str

    def add_arguments(self, parser: CommandParser) -> None:
        given = django_settings
        parser.add_argument("--drain", action="store_true", default=given.ERGON_DRAIN, help="stop when nothing is due")
        parser.add_argument("--limit", type=_whole, default=given.ERGON_LIMIT, help="start at most so many, then stop")
        parser.add_argument("--timeout", type=_seconds, default=given.ERGON_TIMEOUT, help="stop after so many seconds")
        parser.add_argument(
            "--concurrency", type=_whole, default=given.ERGON_CONCURRENCY, help="slots, instead of the policy's"
        )
        parser.add_argument("--batch", type=_whole, default=given.ERGON_BATCH, help="batch, instead of the policy's")
        parser.add_argument(
            "--processes", type=_whole, default=given.ERGON_PROCESSES, help="so many processes (default 1)"
        )
        parser.add_argument(
            "--metrics-port", type=_whole, default=given.ERGON_METRICS_PORT, help="serve /metrics on this port"
        )
        parser.add_argument(
            "--grace",
            type=_seconds,
            default=given.ERGON_GRACE,
            help="after SIGTERM let what runs end for so many seconds (default 25), then give it back",
        )
        parser.add_argument("--json", action="store_true", default=given.ERGON_JSON, help="one JSON object per event")

    def serve(self, chosen: Sequence[Pipeline], options: dict[str, Any]) -> None:
        """Run the pipelines; the process ends with the code that tells how it went."""
        if options["processes"] > 1:
            self._end(Supervisor(options["processes"], self.stdout, as_json=options["json"]).run(sys.argv))
        if options["metrics_port"]:
            import_string(django_settings.ERGON_METRICS_SERVER)(options["metrics_port"])
        try:
            with Crew(chosen, _options(options)) as crew:
                code = self._watch(crew, options)
        except (RegistryError, UnrunnableError) as error:
            self.stderr.write(f"ergon: {error}")
            self._end(BAD_CONFIGURATION)
        self._end(code)

    def choose(self, names: Sequence[str]) -> list[Pipeline]:
        """The pipelines that were named, or all that are enabled."""
        if not names:
            return pipelines.served_by_default(self.direction)
        try:
            chosen = [pipelines.find(name) for name in dict.fromkeys(names)]
        except EngineError as error:
            raise CommandError(str(error)) from None
        for pipeline in chosen:
            if pipeline.direction != self.direction:
                other = "produce" if self.direction == "inbound" else "consume"
                msg = f"the pipeline {pipeline.name!r} is {pipeline.direction}: use manage.py {other}"
                raise CommandError(msg)
        return chosen

    def _watch(self, crew: Crew, options: dict[str, Any]) -> int:
        shown = Told(crew, self.stdout, as_json=options["json"])
        shown.started()
        signals = Signals(crew.stop)
        cut_at: float | None = None
        while crew.is_running:
            crew.changed.wait(EVERY if cut_at is None else 0.05)
            crew.changed.clear()
            shown.look()
            if crew.errors and not crew.station.is_stopping:
                crew.stop()
            if crew.station.is_stopping and cut_at is None:
                cut_at = time.monotonic() + options["grace"]
            if cut_at is not None and time.monotonic() >= cut_at:
                crew.cut()
        code = _code(crew, is_timed=options["timeout"] is not None)
        for error in crew.errors:
            if not isinstance(error, LoopTimeout):
                self.stderr.write(f"ergon: {told(error)}")
        signals.restore()
        shown.stopped(code)
        return code

    def _end(self, code: int) -> None:
        """At once: handlers that never return must not keep the process."""
        sys.stdout.flush()
        sys.stderr.flush()
        if threading.active_count() > 1 and code in {GIVEN_BACK, ABANDONED}:
            os._exit(code)
        if code:
            sys.exit(code)


class Signals:
    """SIGTERM and SIGINT ask to stop; the second one ends the process at once."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop, self._is_asked = stop, False
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_asked:
            os._exit(128 + number)
        self._is_asked = True
        self._stop()


def _options(options: dict[str, Any]) -> Options:
    return Options(
        is_draining=options["drain"],
        limit=options["limit"],
        timeout=options["timeout"],
        concurrency=options["concurrency"],
        batch=options["batch"],
        abandoned_grace=django_settings.ERGON_ABANDONED_GRACE,
    )


def _code(crew: Crew, *, is_timed: bool) -> int:
    if any(isinstance(error, AbandonedAttemptsError) for error in crew.errors):
        return ABANDONED
    if any(not isinstance(error, LoopTimeout) for error in crew.errors):
        return LOOP_ERROR
    if crew.given_back and not (is_timed and crew.errors):
        return GIVEN_BACK
    return FINISHED


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        msg = f"a whole number above 0, not {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        msg = f"a number of seconds, not {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return seconds

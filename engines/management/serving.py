"""The base of `consume` and `produce`: options, signals, grace, exit codes, several processes."""

import argparse
import atexit
import gc
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from engines import pipelines
from engines.conf import setting, settings
from engines.core import failures
from engines.core.errors import DependencyError, EngineError, LoopTimeout, UnreachableError, UnrunnableError
from engines.management.base import hint_for
from engines.models import Pipeline
from engines.reads import depth
from engines.tasks.registry import RegistryError
from engines.worker.event_loop import is_anybody_left
from engines.worker.pipeline import Options, missing_here
from engines.worker.process import WorkerProcess
from engines.worker.progress import EVERY, ProgressReporter, alone, banner
from engines.worker.signals import StopSignals
from engines.worker.supervisor import Supervisor
from ergon_site.access.checks import TAG
from ergon_site.access.cli.commands import one_line, tell_errors_in_one_line, told_in_one_line
from ergon_site.access.cli.options import add_metrics_port, seconds, some_seconds, whole
from ergon_site.access.cli.program import typed
from ergon_site.access.cli.service import serve_metrics

MOST = 1_000_000
# How long pipelines may take to give back what they hold, once they are told to wait for nothing. Outcomes that the
# database does not take may wait for it as long as their leases last.
LEAVING = 5.0
FINISHED, LOOP_ERROR, USAGE, GIVEN_BACK, ABANDONED = 0, 1, 2, 3, 4
DEPENDENCY_MISSING, BAD_CONFIGURATION = os.EX_UNAVAILABLE, os.EX_CONFIG
CUT_OFF = "the database does not answer: unsettled transactions run again when their leases have expired"


class ServingCommand(BaseCommand):
    """Runs pipelines of one direction until stopped."""

    # Of the settings alone. The others look at the console's pages above all, and cost a consumer memory for good.
    requires_system_checks = [TAG]

    direction: str

    def add_arguments(self, parser: CommandParser) -> None:
        tell_errors_in_one_line(parser)
        count = whole(1, MOST)
        add = parser.add_argument
        add("--drain", action="store_true", default=setting("ERGON_DRAIN"), help="stop when no transaction is due")
        at_once = "transactions at once in each pipeline, instead of the policy's number"
        claimed = "transactions claimed at once, instead of the policy's number"
        after = "how long running transactions may go on after SIGTERM (default 25); then they are given back"
        for option, metavar, kind, default, what in (
            ("--limit", "N", count, setting("ERGON_LIMIT"), "start at most N transactions, then stop"),
            ("--timeout", "SECONDS", some_seconds, setting("ERGON_TIMEOUT"), "stop after this time"),
            ("--concurrency", "N", count, setting("ERGON_CONCURRENCY"), at_once),
            ("--batch", "N", count, setting("ERGON_BATCH"), claimed),
            ("--processes", "N", count, setting("ERGON_PROCESSES"), "number of processes (default 1)"),
            ("--grace", "SECONDS", seconds, setting("ERGON_GRACE"), after),
        ):
            add(option, metavar=metavar, type=kind, default=default, help=what)
        add_metrics_port(parser, default=setting("ERGON_METRICS_PORT"))
        add("--supervised", action="store_true", help=argparse.SUPPRESS)
        add(
            "--json",
            action="store_true",
            default=setting("ERGON_JSON"),
            help="print one JSON object per event, for programs",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        with told_in_one_line(EngineError, hint=hint_for):
            self.run(options)

    def run(self, options: dict[str, Any]) -> None:
        raise NotImplementedError

    def serve(self, chosen: Sequence[Pipeline], options: dict[str, Any]) -> None:
        """Run the pipelines; the process ends with the code that tells how it went."""
        if not options["json"]:  # on standard error: standard output is for the counts at the end
            name = type(self).__module__.rpartition(".")[2]
            for line in banner(name, chosen, concurrency=options["concurrency"], processes=options["processes"]):
                self.stderr.write(line, str)
            self.stderr.flush()
        options["total"] = _total(chosen, options) if options["drain"] and self.stderr.isatty() else None
        if options["processes"] > 1:
            commands = list(self._commands(chosen, options))
            self._end(Supervisor(commands, self.stdout, as_json=options["json"], total=options["total"]).run())
            return
        serve_metrics(options["metrics_port"])
        if options["supervised"]:
            self.stdout = alone(self.stdout)
        given = Options(
            is_draining=options["drain"],
            **{name: options[name] for name in ("limit", "timeout", "concurrency", "batch")},
            abandoned_grace=setting("ERGON_ABANDONED_GRACE"),
            cancel_grace=setting("ERGON_CANCEL_GRACE"),
        )
        if getattr(self, "_called_from_command_line", False):
            gc.freeze()  # what is loaded by now stays: the collector need not go through it again and again
        orders = StopSignals(same_within=1.0 if options["supervised"] else 0.0)
        try:
            with WorkerProcess(chosen, given, lambda: not orders.is_asked) as worker:
                orders.stop_with(worker.stop)
                code = self._watch(worker, options)
                orders.work_is_done()
        except (RegistryError, UnrunnableError) as error:
            self.stderr.write(f"ergon: {error}")
            self._end(BAD_CONFIGURATION)
            return
        except DependencyError as error:
            self.stderr.write(f"ergon: {error}")
            self._end(DEPENDENCY_MISSING, is_forced=True)  # a thread may still wait for a connection
            return
        finally:
            orders.conclude(is_process_ending=getattr(self, "_called_from_command_line", False))
        self._end(code, is_forced=worker.is_cut or code == ABANDONED or is_anybody_left())

    def _commands(self, chosen: Sequence[Pipeline], options: dict[str, Any]) -> Iterator[list[str]]:
        """The same for each of several processes: a limit is shared out, each has a metrics port of its own."""
        count, limit = options["processes"], options["limit"]
        count = count if limit is None else min(count, limit)
        name = type(self).__module__.rpartition(".")[2]
        for index in range(count):
            given = {
                "limit": limit and limit // count + (index < limit % count),
                "metrics-port": options["metrics_port"] and options["metrics_port"] + index,
                **{name: options[name] for name in ("timeout", "concurrency", "batch", "grace")},
            }
            values = [
                part for option, value in given.items() if value is not None for part in (f"--{option}", str(value))
            ]
            flags = ["--drain"] if options["drain"] else []
            names = [pipeline.name for pipeline in chosen]
            yield [sys.argv[0], name, *names, *values, *flags, "--processes", "1", "--json", "--supervised"]

    def choose(self, names: Sequence[str]) -> list[Pipeline]:
        """The pipelines that were named, or all that are enabled."""
        try:
            chosen = [pipelines.find(name) for name in dict.fromkeys(names)]
        except EngineError as error:
            raise CommandError(": ".join(filter(None, [one_line(error), hint_for(error)])), returncode=USAGE) from None
        for pipeline in chosen:
            if pipeline.direction != self.direction:
                other = "produce" if self.direction == "inbound" else "consume"
                msg = f"the pipeline {pipeline.name!r} is {pipeline.direction}: use {typed(other)}"
                raise CommandError(msg, returncode=USAGE)
        if names:
            return chosen
        enabled = pipelines.served_by_default(self.direction)
        for pipeline in enabled:
            if (what := missing_here(pipeline)) is None:
                chosen.append(pipeline)
            else:
                self.stderr.write(f"ergon: the pipeline {pipeline.name!r} is skipped: there is no {what} here")
        if enabled and not chosen:
            msg = "none of the enabled pipelines can run here: are ERGON_TASKS and ERGON_EXECUTORS set?"
            raise CommandError(msg, returncode=BAD_CONFIGURATION)
        return chosen

    def _watch(self, worker: WorkerProcess, options: dict[str, Any]) -> int:
        shown = ProgressReporter(worker, self.stdout, as_json=options["json"], total=options["total"])
        shown.started()
        cut_at: float | None = None
        parent = os.getppid() if options["supervised"] else None
        while worker.is_running:
            if worker.is_cut and cut_at is not None and time.monotonic() >= cut_at + _time_to_leave(worker):
                break  # it has had its time to give back what it holds: a blocked event loop never does
            worker.changed.wait(EVERY if cut_at is None else 0.05)
            worker.changed.clear()
            shown.look()
            self._tell_of_ends(worker, options)
            is_orphan = parent is not None and os.getppid() != parent
            if (worker.is_abandoned or is_orphan) and not worker.heartbeat.is_stopping:
                worker.stop()
            if worker.heartbeat.is_stopping and cut_at is None:
                cut_at = time.monotonic() + options["grace"]
            if worker.is_abandoned:  # the process is to be replaced, and at once
                cut_at = min(cut_at or math.inf, time.monotonic())
            if cut_at is not None and time.monotonic() >= cut_at:
                worker.cut()
        self._tell_of_ends(worker, options)
        code = _code(worker, is_timed=options["timeout"] is not None)
        if _is_cut_off(worker):
            self.stderr.write(f"ergon: {CUT_OFF}")
        shown.stopped(code)
        return code

    def _tell_of_ends(self, worker: WorkerProcess, options: dict[str, Any]) -> None:
        """Of pipelines that have ended by themselves; the others go on. What was asked for here needs no word."""
        for runner in worker.newly_ended():
            name, error = runner.pipeline.name, runner.error
            if isinstance(error, LoopTimeout) and options["timeout"] is None:
                self.stderr.write(
                    f"ergon: the pipeline {name!r} has ended by its policy's loop.timeout: {failures.message_of(error)}"
                )
            elif runner.has_reached_limit and options["limit"] is None:
                self.stderr.write(f"ergon: the pipeline {name!r} has ended by its policy's loop.limit")
            elif isinstance(error, EngineError) and not isinstance(error, LoopTimeout):
                self.stderr.write(f"ergon: {failures.message_of(error)}")
            elif error is not None and not isinstance(error, LoopTimeout):
                told = f"{type(error).__name__}: {failures.message_of(error)}"
                self.stderr.write(f"ergon: the pipeline {name!r} has ended: {told}")

    def _end(self, code: int, *, is_forced: bool = False) -> None:
        """By force where handlers may never return, which must not keep the process; exporters still get their turn."""
        if is_forced:
            sys.stdout.flush()
            sys.stderr.flush()
            atexit._run_exitfuncs()  # noqa: SLF001 (there is no other way to run them and not wait for threads)
            os._exit(code)
        if code:
            sys.exit(code)


def _total(chosen: Sequence[Pipeline], options: dict[str, Any]) -> int | None:
    """The number of transactions that a drain is to run, as far as the database knows it."""
    if any(pipeline.connector != "database" for pipeline in chosen):
        return None
    most = options["limit"] or sys.maxsize
    return sum(min(depth.due(pipeline.pk), most) for pipeline in chosen)


def _code(worker: WorkerProcess, *, is_timed: bool) -> int:
    if worker.is_abandoned:
        return ABANDONED
    if _is_cut_off(worker):
        return DEPENDENCY_MISSING
    faults = [error for error in worker.errors if not isinstance(error, LoopTimeout)]
    if faults:
        return DEPENDENCY_MISSING if all(map(_is_unreachable, faults)) else LOOP_ERROR
    if worker.is_running or (worker.given_back and not (is_timed and worker.errors)):
        return GIVEN_BACK
    return FINISHED


def _time_to_leave(worker: WorkerProcess) -> float:
    return max(LEAVING, settings().lease) if worker.heartbeat.completer.is_flushing else LEAVING


def _is_cut_off(worker: WorkerProcess) -> bool:
    return worker.heartbeat.is_cut_off and worker.heartbeat.in_flight > 0


def _is_unreachable(error: BaseException) -> bool:
    """Whether a loop ended because a server does not answer, whatever that was wrapped in."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UnreachableError):
        cause = cause.__cause__
    return cause is not None

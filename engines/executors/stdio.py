"""One executor process, from the parent's side: start it, ask it, end it. Its time is bounded here, by killing."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

import structlog

from engines.core.errors import EngineError
from engines.executors.guard import Guard
from engines.executors.protocol import ExecutionOutcome, Lines, Noise, ProtocolError, Status, Unusable, read_outcome
from engines.executors.settings import ExecutorSettings
from engines.executors.stderr import Listener, Voice

# Between SIGTERM and SIGKILL.
GRACE = 1.0
# How long the end of a process may take to be told after the end of its output.
OBITUARY = 0.5
# Where the kernel cannot tell that a process has ended, it is asked this often.
LOOK = 0.05
# Read at once, so that one who never stops talking cannot keep anybody from looking at the clock.
CHUNK, CHUNKS = 1 << 18, 64
# Skipped lines that are logged for one job; all are counted.
SKIPS_TOLD = 10
# Jobs that a process knows to have tried without success.
REMEMBERED = 1000

log = structlog.get_logger("ergon.executor")


class ExecutorError(EngineError):
    """The executor failed, not the handler; `details` are its last words."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


class ExecutorStartError(ExecutorError):
    """It could not be started."""


class ExecutorDied(ExecutorError):  # noqa: N818 (it reads as what happened)
    """It ended, or broke the protocol, before it had answered."""


class LimitPassed(EngineError):  # noqa: N818
    """It did not answer in time."""


class ExecutorProcess:
    """A child in a process group of its own, which dies with all that it has started."""

    def __init__(
        self, settings: ExecutorSettings, environment: Mapping[str, str], guard: Guard, listener: Listener
    ) -> None:
        self._settings, self._guard, self._listener = settings, guard, listener
        self._process = _start(settings, environment)
        self.pid = self._process.pid
        guard.watch(self.pid)
        self._stdin, self._stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        self._voice = Voice(settings.name, self.pid, self._process.stderr)  # type: ignore[arg-type]
        listener.attach(self._voice)
        self._death = _pidfd(self.pid)
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        if self._death is not None:
            self._poll.register(self._death, select.POLLIN)
        self._lines = Lines(settings.line_limit)
        self._is_output_over = False
        self._ending = threading.Lock()
        self.gone = threading.Event()
        self.started_at = time.time()
        self.job_id: str | None = None
        self.answered = self.skipped = self._skipped_now = 0
        self._tried: dict[str, None] = {}

    @property
    def is_usable(self) -> bool:
        """Whether it lives, and whatever it said since its last answer is out of the way."""
        self._receive(None)
        return not self._is_output_over and not self._has_ended(0)

    def ask(self, job_id: str, line: bytes, until: float | None) -> ExecutionOutcome:
        """Send a job and wait for its answer, until a moment on the monotonic clock."""
        self.job_id, self._skipped_now = job_id, 0
        self._remember(job_id)
        self._voice.begin(job_id)
        rest = self._send(memoryview(line))
        while True:
            ready = self._wait(until, is_writing=bool(rest))
            if self._stdin in ready:
                rest = self._send(rest)
            outcome = self._receive(job_id) if self._stdout in ready or self._death in ready else None
            if outcome is not None:
                self.answered += 1
                self.job_id = None
                if outcome.status is Status.SUCCESS:
                    del self._tried[job_id]  # nobody will try it again
                return outcome
            if self._is_output_over or self._death in ready:
                raise self._death_of(job_id)
            if not ready and until is not None and time.monotonic() >= until:
                raise LimitPassed

    def has_tried(self, job_id: str) -> bool:
        return job_id in self._tried

    def end(self) -> None:
        """SIGTERM to the whole group, a second, SIGKILL; returns when nothing of it is left."""
        with self._ending:
            if self.gone.is_set():
                return
            if not self._has_ended(0):
                self._signal(signal.SIGTERM)
                self._has_ended(GRACE)
            # Before it is reaped: until then nobody else can have its number.
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._guard.forget(self.pid)
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
            if self._death is not None:
                os.close(self._death)
            if not self._voice.is_over.wait(LOOK):  # somebody who left the group holds the pipe
                self._listener.detach(self._voice)
            self.gone.set()

    def _remember(self, job_id: str) -> None:
        self._tried[job_id] = None
        if len(self._tried) > REMEMBERED:
            del self._tried[next(iter(self._tried))]

    def _send(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._stdin, rest) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:  # it does not want to know; whether it lives is seen elsewhere
            return rest[:0]

    def _wait(self, until: float | None, *, is_writing: bool) -> set[int | None]:
        if is_writing:
            self._poll.register(self._stdin, select.POLLOUT)
        seconds = None if until is None else max(0.0, until - time.monotonic())
        if self._death is None:
            seconds = LOOK if seconds is None else min(LOOK, seconds)
        try:
            ready: set[int | None] = {one for one, _ in self._poll.poll(None if seconds is None else seconds * 1000)}
        finally:
            if is_writing:
                self._poll.unregister(self._stdin)
        if self._death is None and self._has_ended(0):
            ready.add(None)
        return ready

    def _receive(self, awaited: str | None) -> ExecutionOutcome | None:
        """Everything that has come; the answer, if it is among it. What is nobody's answer is counted and let go."""
        answer = None
        for _ in range(CHUNKS):
            try:
                chunk = os.read(self._stdout, CHUNK)
            except BlockingIOError:
                break
            self._is_output_over = not chunk
            try:
                for line in self._lines.feed(chunk):
                    answer = answer or self._judge(line, awaited)
            except ProtocolError as error:
                raise self._broken(str(error)) from None
            if self._is_output_over:
                break
        return answer

    def _judge(self, line: bytes, awaited: str | None) -> ExecutionOutcome | None:
        match read_outcome(line, awaited) if awaited is not None else Noise("nothing was asked"):
            case ExecutionOutcome() as outcome:
                return outcome
            case Unusable(reason):
                raise self._broken(reason)
            case Noise(reason):
                self._skip(awaited, reason)
        return None

    def _skip(self, awaited: str | None, reason: str) -> None:
        self.skipped += 1
        self._skipped_now += 1
        if self._skipped_now <= SKIPS_TOLD:
            log.info("executor_line_skipped", executor=self._settings.name, pid=self.pid, job=awaited, why=reason)

    def _broken(self, reason: str) -> ExecutorDied:
        return ExecutorDied(f"executor {self._settings.name!r} was ended: {reason}", self._last_words())

    def _death_of(self, job_id: str) -> ExecutorDied:
        name = self._settings.name
        if not self._has_ended(OBITUARY):
            return ExecutorDied(f"executor {name!r} closed its output without an answer", self._last_words())
        half = " in the middle of a line" if self._lines.is_mid_line else ""
        self.end()
        return ExecutorDied(f"executor exited with code {self._code()}{half}: {name!r}", self._last_words())

    def _code(self) -> str:
        """As a shell tells it: 128 and the signal's number for one that was killed."""
        code = self._process.returncode
        return str(code) if code >= 0 else f"{128 - code} ({signal.Signals(-code).name})"

    def _last_words(self) -> str:
        self._voice.is_over.wait(0.2 if self._has_ended(0) else 0)
        return "\n".join(self._voice.last)

    def _has_ended(self, seconds: float) -> bool:
        """Whether it ends within so many seconds; it is not reaped by asking."""
        if self.gone.is_set():
            return True
        if self._death is not None:
            watch = select.poll()
            watch.register(self._death, select.POLLIN)
            return bool(watch.poll(seconds * 1000))
        until = time.monotonic() + seconds
        while not (is_over := _is_zombie(self.pid)) and time.monotonic() < until:
            time.sleep(LOOK / 5)
        return is_over

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _start(settings: ExecutorSettings, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            settings.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=settings.cwd,
            env={**environment, **settings.env},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"executor {settings.name!r} cannot be started: {settings.command[0]}: {reason}"
        raise ExecutorStartError(msg) from error


def _pipe(pipe: IO[bytes] | None) -> int:
    fileno: Any = pipe and pipe.fileno()
    os.set_blocking(fileno, False)
    return int(fileno)


def _pidfd(pid: int) -> int | None:
    """What becomes readable when a process ends, where the kernel has such a thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True

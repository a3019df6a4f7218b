"""An executor process, from the parent's side: ask, listen, end. Its time is bounded here, by killing."""

import os
import select
import threading
import time
from collections import deque
from collections.abc import Mapping

import structlog

from engines.executors.child import Child
from engines.executors.errors import ExecutorDied, LimitPassed
from engines.executors.lines import Lines, TooLong
from engines.executors.protocol import ExecutionOutcome, Noise, Status, Unusable, read_outcome
from engines.executors.settings import ExecutorSettings
from engines.executors.stderr import Listener, Voice

# How long the end of a process may take to be told after the end of its output.
OBITUARY = 2.0
# How long the last lines of one that has ended may take to arrive.
LAST_WORDS = 0.2
# How long the end of its stderr may take to be seen once it has ended.
QUIET = 0.05
# The longest wait without a look at the clock: the system's own timers end somewhere.
LONGEST = 3600.0
# Read one by one, so that who never stops talking cannot keep anybody from looking at the clock.
CHUNK = 1 << 16
# So much of it can be in a pipe that nobody reads: of one who has ended, and of one who waits.
LEFT, LEFT_IDLE = 16, 4
# Skipped lines that are logged for one job; all are counted.
SKIPS_TOLD = 10
# So many jobs without success, each of which it must not try again, and it is replaced.
MOST_TRIED = 1000

log = structlog.get_logger("ergon.executor")


class ExecutorProcess:
    """Takes one job at a time. Whoever asks has it alone, and its pipes are not closed under them."""

    def __init__(
        self,
        settings: ExecutorSettings,
        environment: Mapping[str, str],
        listener: Listener,
        said: deque[str],
    ) -> None:
        self._name, self._listener = settings.name, listener
        self._child = Child(settings, environment)
        self.pid = self._child.pid
        self._voice = Voice(settings.name, self.pid, self._child.stderr, said)
        self._poll = select.poll()
        self._poll.register(self._child.stdout, select.POLLIN)
        self._poll.register(self._child.stdin, 0)  # tells when nobody can read it any more
        self._poll.register(self._child.death, select.POLLIN)
        self._lines = Lines(settings.line_limit)
        self._is_output_over = self._is_deaf = self._is_spent = self._is_closed = False
        self._asking = threading.Lock()
        self.is_ending = False
        self.gone = threading.Event()
        self.started_at = time.time()
        self.job_id: str | None = None
        self.answered = self.skipped = self._skipped_now = 0
        self._broken_line = ""  # what was wrong with a line that may have been meant as the answer
        self._tried: set[str] = set()
        listener.attach(self._voice)

    def fault(self) -> str | None:
        """Why it cannot take a job, if it cannot. Whatever it said since its last answer is let go."""
        with self._asking:
            if self._is_closed:
                return "it was ended"
            if self._poll.poll(0):  # it has ended, said something, or closed a pipe
                self._receive(None, LEFT_IDLE)
                if self._child.has_ended():
                    return "it ended while it waited for a job"
                if self._child.is_deaf:
                    return "it closed its input"
            if self._is_output_over:
                return "it closed its output"
            return "it does not read or write its lines to their end" if self._is_spent else None

    def may_try(self, job_id: str) -> bool:
        """Whether it may try a job: not one that it has tried before without success.

        The id of a job is the same at every attempt, so a late line of the first one could be taken for the answer to
        the second.
        """
        return job_id not in self._tried

    @property
    def is_worn(self) -> bool:
        """Whether it has tried so many jobs without success that it is better replaced than remembered."""
        return len(self._tried) >= MOST_TRIED

    def ask(self, job_id: str, line: bytes, until: float | None) -> ExecutionOutcome:
        """Send a job and wait for its answer, until a moment on the monotonic clock."""
        with self._asking:
            if self._is_closed:
                msg = f"executor {self._name!r} was ended before it could begin"
                raise ExecutorDied(msg)
            self.job_id, self._skipped_now, self._broken_line = job_id, 0, ""
            self._tried.add(job_id)
            self._voice.begin(job_id)
            try:
                outcome = self._converse(job_id, memoryview(line), until)
            finally:
                self.job_id = None
            self.answered += 1
            if outcome.status is Status.SUCCESS:  # nobody tries it again
                self._tried.discard(job_id)
            return outcome

    def end(self) -> None:
        """SIGTERM to the whole group, a second, SIGKILL; returns when nothing of it is left."""
        self.is_ending = True
        self._child.kill()
        # Who asks sees that it is dead, and leaves.
        with self._asking:
            if self._is_closed:
                return
            self._is_closed = True
            self._child.close()
            if not self._voice.is_over.wait(QUIET):  # somebody who left the group holds the pipe
                self._listener.detach(self._voice)
            self.gone.set()

    def _converse(self, job_id: str, line: memoryview, until: float | None) -> ExecutionOutcome:
        rest = self._send(line)
        while True:
            ready = self._wait(until, is_writing=bool(rest))
            if self._child.stdin in ready and rest:
                rest = self._send(rest)
            elif self._child.stdin in ready:
                # It closed its input: harmless if this job was read; no other job is sent to it.
                self._is_deaf = self._child.unread > 0
                self._is_spent = True
                self._poll.unregister(self._child.stdin)
            is_last = self._child.death in ready or self._is_deaf
            outcome = self._receive(job_id, LEFT if is_last else 1)
            if outcome is None and (is_last or self._is_output_over):
                # One that has ended may not have ended its last line: half an answer is never whole JSON.
                unended = read_outcome(self._lines.begun, job_id)
                if isinstance(unended, Unusable):
                    self._broken_line = unended.reason
                outcome = unended if isinstance(unended, ExecutionOutcome) else None
            if outcome is not None:
                self._is_spent = self._is_spent or bool(rest)  # the next job would begin in the middle of this one
                return outcome
            if is_last or self._is_output_over:
                death = self._death()
                death.is_unread = self.answered > 0 and self._child.unread == len(line) - len(rest)
                raise death
            if until is not None and time.monotonic() >= until:
                raise LimitPassed(self._broken_line)

    def _send(self, rest: memoryview) -> memoryview:
        try:
            return rest[os.write(self._child.stdin, rest) :]
        except BlockingIOError:
            return rest
        except BrokenPipeError:
            self._is_deaf = True
            return rest

    def _wait(self, until: float | None, *, is_writing: bool) -> set[int]:
        """Which of its pipes have something to say."""
        if self._is_deaf:
            return set()
        if is_writing:
            self._poll.modify(self._child.stdin, select.POLLOUT)
        seconds = LONGEST if until is None else min(LONGEST, max(0.0, until - time.monotonic()))
        try:
            return {one for one, _ in self._poll.poll(seconds * 1000)}
        finally:
            if is_writing:
                self._poll.modify(self._child.stdin, 0)

    def _receive(self, awaited: str | None, chunks: int) -> ExecutionOutcome | None:
        """Read what has come, up to a number of pieces; the answer, if it is among it."""
        answer = None
        for _ in range(chunks):
            try:
                chunk = os.read(self._child.stdout, CHUNK)
            except BlockingIOError:
                break
            for line in self._lines.feed(chunk):
                answer = self._judge(line, None if answer else awaited) or answer
            if not chunk:
                self._is_output_over = True
                break
        return answer

    def _judge(self, line: bytes | TooLong, awaited: str | None) -> ExecutionOutcome | None:
        """The answer; or nothing, and what is nobody's answer is counted and let go."""
        if isinstance(line, TooLong):
            self._is_spent = True
            if awaited is not None:
                msg = f"a line is longer than {len(line.beginning):,} bytes"
                raise self._broken(msg)
            return None
        match read_outcome(line, awaited):
            case ExecutionOutcome() as outcome:
                return outcome
            case Unusable(reason):
                raise self._broken(reason)
            case Noise(reason, is_meant):
                self._broken_line = f"a line that looked like its answer is {reason}" if is_meant else self._broken_line
                self.skipped += 1
                self._skipped_now += 1
                if self._skipped_now <= SKIPS_TOLD:
                    log.info("executor_line_skipped", executor=self._name, pid=self.pid, job=awaited, why=reason)
        return None

    def _broken(self, reason: str) -> ExecutorDied:
        return ExecutorDied(f"executor {self._name!r} was ended: {reason}", self._last_words(0))

    def _death(self) -> ExecutorDied:
        name, half = self._name, " in the middle of a line" if self._lines.is_mid_line else ""
        why = f"; {self._broken_line}" if self._broken_line else ""
        if self._child.has_ended(OBITUARY):
            self._child.kill()
            msg = f"executor exited with code {self._child.code}{half}: {name!r}{why}"
            return ExecutorDied(msg, self._last_words(LAST_WORDS))
        if self._is_output_over:
            msg = f"executor {name!r} closed its output without an answer{half}{why}"
        else:
            msg = f"executor {name!r} closed its input before it had read the job{why}"
        return ExecutorDied(msg, self._last_words(0))

    def _last_words(self, patience: float) -> str:
        self._voice.is_over.wait(patience)
        return "\n".join(self._voice.last)

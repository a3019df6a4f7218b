"""Starts one executor, and ends it with everything that it has started, in whatever process group or session.

Run as a program of its own, by path: `keeper.py SOCKET`, where the socket leads to the worker. The executor inherits
its standard streams. It is the "child subreaper" of all that the executor starts: what loses its parent becomes a child
of the keeper, not of init, and can be found and killed. It outlives a worker that is killed for that purpose alone.

The worker sends the command and its environment, and then one letter: T for SIGTERM to the executor's group, K to kill
everything; the end of the connection means the same as K. The keeper answers with the executor's process id (or `!` and
the number of the error that kept it from starting), and once it has ended, with its exit code.
"""

import ctypes
import os
import select
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Python ignores these; the executor is to have them as every program does.
RESTORED = (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    worker = int(sys.argv[1])
    os.set_inheritable(worker, False)  # noqa: FBT003 (it takes no names)
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    ends, told = os.pipe()  # readable when a child has ended
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    executor = start(worker, *received(worker))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the executor's, whose ends are to be seen
        os.dup2(nothing, stream)
    serve(worker, executor, ends)
    end_everything(executor)


def prctl(option: int, value: int) -> None:
    """Linux alone has it; elsewhere what leaves the executor's group is not found."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def received(worker: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """The command and its environment, each word ended by a zero byte, and each of both lists by another one."""
    text = b""
    while text.count(b"\0\0") < 2:  # noqa: PLR2004 (two lists)
        chunk = os.read(worker, 65536)
        if not chunk:
            sys.exit(0)  # the worker has gone
        text += chunk
    command, environment, _ = text.split(b"\0\0")
    pairs = (pair.partition(b"=") for pair in environment.split(b"\0") if pair)
    return command.split(b"\0"), {name: value for name, _, value in pairs}


def start(worker: int, command: list[bytes], environment: dict[bytes, bytes]) -> int:
    reader, writer = os.pipe()
    try:
        executor = os.fork()
    except OSError as error:
        tell(worker, b"!%d\n" % (error.errno or 0))
        sys.exit(0)
    if executor == 0:
        try:
            os.setsid()
            for number in RESTORED:
                signal.signal(number, signal.SIG_DFL)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.execvpe(command[0], command, environment)  # noqa: S606 (as the settings say)
        except OSError as error:
            os.write(writer, b"%d" % (error.errno or 0))
        finally:
            os._exit(127)
    os.close(writer)
    fault = os.read(reader, 16)  # the end of the pipe, once it runs
    os.close(reader)
    tell(worker, b"!%s\n" % fault if fault else b"%d\n" % executor)
    return executor


def serve(worker: int, executor: int, ends: int) -> None:
    """Until the executor has ended, or the worker wants everything to end."""
    watch = select.poll()
    watch.register(worker, select.POLLIN)
    watch.register(ends, select.POLLIN)
    while True:
        ready = {fileno for fileno, _ in watch.poll()}
        if ends in ready:
            os.read(ends, 512)
            if (code := reap(executor)) is not None:
                tell(worker, b"%d\n" % code)
                return
        if worker in ready:
            if os.read(worker, 1) != b"T":
                return
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(executor, signal.SIGTERM)


def reap(executor: int) -> int | None:
    """The executor's exit code, if it has ended. It is not reaped: its number must not become another's."""
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
        if ended.si_pid == executor:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        os.waitpid(ended.si_pid, 0)
    return None


def tell(worker: int, line: bytes) -> None:
    with suppress(OSError):  # it has gone
        os.write(worker, line)


def end_everything(executor: int) -> None:
    """Whatever loses its parent by this becomes a child of this process, and is killed in the next round."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(executor, signal.SIGKILL)
    with suppress(ChildProcessError):  # there is none left
        os.waitpid(executor, 0)
        is_any_killed = True
        while is_any_killed:
            is_any_killed = False
            for process in children():
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
                    is_any_killed = True
            if is_any_killed:
                os.waitpid(-1, 0)


def children() -> list[int]:
    found, own = [], b"%d" % os.getpid()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():  # noqa: PTH112, PTH208 (pathlib takes its time to load)
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as about:  # noqa: PTH123
                # The name of the program stands in parentheses, and may have any in it.
                if about.read().rpartition(b")")[2].split()[1] == own:
                    found.append(int(name))
    return found


if __name__ == "__main__":
    main()

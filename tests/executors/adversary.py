"""An executor that does as its first argument says, none of it good. It knows nothing of Ergon's own runtime."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEHAVIOURS: dict[str, Callable[[Any], None]] = {}
BEFORE: dict[str, Callable[[], None]] = {}


def behaviour(function: Callable[[Any], None]) -> Callable[[Any], None]:
    BEHAVIOURS[function.__name__] = function
    return function


def at_the_start(function: Callable[[], None]) -> Callable[[], None]:
    BEFORE[function.__name__] = function
    return function


def write(text: str | bytes, fileno: int = 1) -> None:
    data = memoryview(text.encode() if isinstance(text, str) else text)
    while data:
        data = data[os.write(fileno, data) :]


def answer(job: Any, result: Any = None, status: str = "success", **more: Any) -> None:
    result = job["args"] if result is None else result
    write(json.dumps({"job_id": job["job_id"], "status": status, "result": result, **more}) + "\n")


def say(job: Any, rest: str) -> None:
    write(f'{{"job_id": "{job["job_id"]}", "status": {rest}}}\n')


@behaviour
def noisy(job: Any) -> None:
    write("starting\n\n[1, 2]\n\xff\n7\n{}\n{broken\n")
    write(json.dumps({"job_id": job["job_id"], "progress": 0.5}) + "\n")
    answer(job)
    write("bye\n")


@behaviour
def twice(job: Any) -> None:
    answer(job)
    answer(job, "again")


@behaviour
def twice_at_the_second(job: Any) -> None:
    """Fails, and while the second attempt runs says what the first one has found meanwhile."""
    if job["context"]["attempt"] > 1:
        time.sleep(1)
        answer(job, f"attempt {job['context']['attempt']}")
        return
    answer(job, status=job["args"][0], error_message="first")
    if os.fork() == 0:
        time.sleep(0.5)
        answer(job, "late")
        os._exit(0)


@behaviour
def of_another(job: Any) -> None:
    answer({**job, "job_id": "t-other"}, "not yours")
    answer({**job, "job_id": ""}, "nobody's")
    answer(job)


@behaviour
def slow(job: Any) -> None:
    time.sleep(30 if job["args"][0] < 2 else 0)
    answer(job)


@behaviour
def half(job: Any) -> None:
    write("I am not well\n", 2)
    write(f'{{"job_id": "{job["job_id"]}", "status": "succ')
    os._exit(3)


@behaviour
def whole_without_end(job: Any) -> None:
    write(json.dumps({"job_id": job["job_id"], "status": "success", "result": job["args"]}))
    os._exit(0)


@behaviour
def once_only(job: Any) -> None:
    answer(job)
    os._exit(0)


@behaviour
def unended_noise(job: Any) -> None:
    write(json.dumps({"job_id": job["job_id"], "status": "success", "result": job["args"]}) + "\ndone...")


@behaviour
def chats(job: Any) -> None:
    """Prints as it works, none of it a line."""
    write("10 %... {50 %}... ")
    answer(job)
    write("done with " + json.dumps({"job_id": job["job_id"]}))


@behaviour
def endless_line(_: Any) -> None:
    for _ in range(100):
        write(b"x" * 1_000_000)


@behaviour
def endless_lines(_: Any) -> None:
    while True:
        write(b"y\n" * 30_000)


@behaviour
def endless_after(job: Any) -> None:
    answer(job)
    for _ in range(100):
        write(b"x" * 1_000_000)


@behaviour
def stubborn(_: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)


@behaviour
def stubborn_in_turn(job: Any) -> None:
    """Writes down its number, and those of the ones before it that still live."""
    with Path(job["args"][0]).open("a+") as file:
        file.seek(0)
        before = [line.split()[0] for line in file]
        file.write(" ".join([str(os.getpid()), *filter(is_alive, before)]) + "\n")
    stubborn(job)


def is_alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@behaviour
def with_grandchild(job: Any) -> None:
    """One that ignores orders and holds the pipes."""
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 1000; sleep 1000"])
    write(f"grandchild {child.pid}\n", 2)
    time.sleep(1000)


@behaviour
def leaves_grandchild(job: Any) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    write(f"grandchild {child.pid}\n", 2)
    os._exit(5)


@behaviour
def leaves_runaway(job: Any) -> None:
    """The grandchild has left the group, and holds the pipes."""
    child = subprocess.Popen(["sleep", "40"], start_new_session=True)
    write(f"grandchild {child.pid}\n", 2)
    os._exit(5)


@behaviour
def with_runaway(job: Any) -> None:
    child = subprocess.Popen(["sleep", "40"], start_new_session=True)
    write(f"grandchild {child.pid}\n", 2)
    time.sleep(1000)


@behaviour
def with_daemon(job: Any) -> None:
    """What it starts has left the group, and has no parent any more."""
    script = "sleep 1000 & echo grandchild $! >&2"
    subprocess.run(["setsid", "sh", "-c", script], check=True)
    if job["args"]:
        answer(job)
    else:
        time.sleep(1000)


@behaviour
def closes_stdout(_: Any) -> None:
    os.close(1)
    time.sleep(1000)


@behaviour
def closes_stdin(job: Any) -> None:
    os.close(0)
    answer(job)
    time.sleep(1000)


@behaviour
def floods_stderr(job: Any) -> None:
    for number in range(20_000):
        write(f"line {number} {'z' * 200}\n", 2)
    write(b"w" * 3_000_000, 2)
    write("\n\xfflast\n", 2)
    answer(job)


@behaviour
def kills_itself(_: Any) -> None:
    write("about to go\n", 2)
    os.kill(os.getpid(), signal.SIGKILL)


@behaviour
def signals_itself(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 3)
    time.sleep(1000)


@behaviour
def says(job: Any) -> None:
    """Whatever it is given, each after the beginning of an answer."""
    for rest in job["args"]:
        say(job, rest)


@behaviour
def deep(job: Any) -> None:
    say(job, '"success", "result": ' + "[" * 100_000 + "]" * 100_000)
    answer(job)


@behaviour
def not_utf8(job: Any) -> None:
    write(f'{{"job_id": "{job["job_id"]}", "status": "success", "result": "'.encode() + b'\xff\xfe"}\n')
    if job["args"]:
        answer(job)


@behaviour
def half_at_first(job: Any) -> None:
    """Half an answer, and the whole one if it is told so."""
    write(f'{{"job_id": "{job["job_id"]}", "status": "success", "result": [1,\n')
    if job["args"]:
        answer(job)


@behaviour
def broken_and_gone(job: Any) -> None:
    half_at_first(job)
    os._exit(4)


@behaviour
def unreadable_and_gone(job: Any) -> None:
    write(f'{{"job_id": "{job["job_id"]}", "status": "success", "result": NaN}}')
    os._exit(4)


@behaviour
def own_timeout(job: Any) -> None:
    """Gives up on the first attempt by itself, and lets it run on."""
    if job["context"]["attempt"] > 1:
        time.sleep(0.4)
        answer(job, "second")
        return
    answer(job, status="timeout", error_message="given up")
    if os.fork() == 0:
        time.sleep(0.2)
        answer(job, "first, late")
        os._exit(0)


@behaviour
def retries(job: Any) -> None:
    if job["context"]["attempt"] < 3:
        answer(job, status="retry", error_message="not yet")
        return
    answer(job, [os.getpid()])


@behaviour
def honest(job: Any) -> None:
    answer(job)


@behaviour
def works(job: Any) -> None:
    time.sleep(0.01)
    answer(job)


@at_the_start
def exits() -> None:
    write("cannot load the model\nno such file\n", 2)
    sys.exit(7)


@at_the_start
def never_reads() -> None:
    time.sleep(1000)


@at_the_start
def answers_unread() -> None:
    """Answers as soon as it has read the beginning of a request, and never reads the rest."""
    begun = os.read(0, 4096)
    start = begun.index(b'"job_id":"') + len(b'"job_id":"')
    job_id = begun[start : begun.index(b'"', start)].decode()
    answer({"job_id": job_id}, "quick")
    time.sleep(1000)


@at_the_start
def closed_stdin() -> None:
    os.close(0)
    time.sleep(1000)


def main(name: str) -> None:
    if name in BEFORE:
        BEFORE[name]()
    for line in sys.stdin:
        BEHAVIOURS[name](json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])

"""`python -m engines.executors`: a real process, driven over its pipes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.executors.driven_executors import Driven, executor, request
from tests.processes import LIMIT, ROOT

pytestmark = pytest.mark.once

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
# How much later than it should a busy machine may do something.
BUSY = 10.0


@pytest.fixture(scope="module")
def plain() -> Iterator[Driven]:
    """One process for all that it must survive."""
    with executor() as one:
        yield one
        assert one.ask("echo", "still here")["result"]["args"] == ["still here"]
        assert one.end() == 0


@pytest.fixture(scope="module")
def odd() -> Iterator[Driven]:
    with executor("tests.executors.odd_handlers") as one:
        yield one
        assert one.ask("partial", 3)["result"] == 8
        assert one.end() == 0


def test_a_plain_function_is_called_with_its_arguments(plain: Driven) -> None:
    told = plain.ask("echo", 1, "two", None, kwargs={"flag": True}, job_id="a-uuid")
    assert (told["job_id"], told["status"]) == ("a-uuid", "success")
    assert told["result"] == {"args": [1, "two", None], "kwargs": {"flag": True}}
    assert (told["error_message"], told["error_type"], told["retry_after_seconds"]) == (None, None, None)


def test_a_coroutine_is_awaited(plain: Driven) -> None:
    assert plain.ask("sleep_async", 0.01)["result"] == "slept"


def test_a_coroutine_behind_a_plain_decorator_is_awaited_too(odd: Driven) -> None:
    assert odd.ask("decorated", 7, job_id="t9")["result"] == ["t9", 7]


def test_coroutines_share_one_loop_from_job_to_job(odd: Driven) -> None:
    def is_kept_by_a_timeout() -> bool:
        first = odd.ask("loop_id")["result"]
        assert odd.ask("tidy_async", "/dev/null", deadline=0.3)["status"] == "timeout"
        return bool(odd.ask("loop_id")["result"] == first)

    assert odd.ask("loop_id")["result"] == odd.ask("loop_id")["result"]
    # One that hears too late that its time is up, as may be where many wait for their turn, is not used again.
    assert any(is_kept_by_a_timeout() for _ in range(20)), "not once in twenty times"


def test_functions_that_do_not_tell_their_parameters_can_be_handlers(odd: Driven) -> None:
    assert odd.ask("builtin", 3, 9, 4)["result"] == 9


def test_a_handler_that_asks_for_the_context_gets_it_first(plain: Driven) -> None:
    context = {
        "attempt": 3,
        "queue_name": "q",
        "worker_id": "w",
        "trace_context": {"tracestate": "a=b"},
        "deadline": 60,
    }
    told = plain.ask("context", "arg", job_id="t5", **context)["result"]
    assert (told["job_id"], told["attempt"], told["queue_name"], told["worker_id"]) == ("t5", 3, "q", "w")
    assert (told["args"], told["trace_context"], told["has_deadline"]) == (["arg"], {"tracestate": "a=b"}, True)
    assert 50 < told["remaining"] <= 60


def test_optional_fields_may_be_missing(plain: Driven) -> None:
    plain.send(b'{"job_id": "t1", "function_name": "context"}\n')
    told = plain.answer()["result"]
    assert (told["job_id"], told["attempt"], told["has_deadline"], told["args"]) == ("t1", 1, False, [])


def test_whatever_is_printed_goes_to_stderr_from_below_python_as_well(plain: Driven) -> None:
    assert plain.ask("print", "hello", "world")["result"] == "said"
    plain.heard("hello")
    plain.heard("world, from below")


def test_what_is_printed_while_handlers_are_imported_goes_to_stderr(odd: Driven) -> None:
    odd.heard("printed while it was imported")


def test_what_a_handlers_child_prints_goes_to_stderr(odd: Driven) -> None:
    assert odd.ask("child_prints")["result"] == "said"
    odd.heard("said by a child")


def test_what_is_printed_without_an_end_of_line_is_out_with_its_job(odd: Driven) -> None:
    assert odd.ask("unended")["result"] == "said"
    assert odd.ask("child_prints")["result"] == "said"  # whose words follow on the same line
    odd.heard("no end of linenor here")


def test_nobody_but_the_runtime_reads_the_input(odd: Driven) -> None:
    odd.send(request("read", job_id="first") + request("builtin", 1, 2, job_id="second"))
    assert odd.answer()["result"] == ["", ""]
    assert (odd.answer()["job_id"]) == "second"


def test_retry_job_asks_for_another_attempt_with_its_delay(plain: Driven) -> None:
    told = plain.ask("retry", 1, kwargs={"after": 2.5})
    assert (told["status"], told["retry_after_seconds"]) == ("retry", 2.5)
    assert told["error_message"] == "not yet, it is attempt 1"
    assert plain.ask("retry", 1)["retry_after_seconds"] is None
    assert plain.ask("retry", 1, attempt=2)["result"] == "done at attempt 2"


@pytest.mark.parametrize(
    ("name", "after"), [("odd retry", None), ("retry -1", -1), (f"retry {10**400}", None), ("retry nan", None)]
)
def test_a_delay_that_makes_no_sense_is_left_to_the_policy(odd: Driven, name: str, after: Any) -> None:
    told = odd.ask("raise", name)
    assert (told["status"], told["retry_after_seconds"]) == ("retry", after)


def test_a_timeout_error_of_the_handlers_own_is_timeout(plain: Driven, odd: Driven) -> None:
    told = plain.ask("time_out")
    assert (told["status"], told["error_message"]) == ("timeout", "the other side is slow")
    told = odd.ask("raise_async", "timeout", deadline=60)
    assert (told["status"], told["error_message"]) == ("timeout", "mine")


def test_anything_else_is_an_error_with_type_and_message_and_its_traceback_is_logged(plain: Driven) -> None:
    told = plain.ask("fail", "no such account")
    assert (told["status"], told["error_type"], told["error_message"]) == ("error", "ValueError", "no such account")
    plain.heard("in fail")


@pytest.mark.parametrize("how", ["raise", "raise_async"])
@pytest.mark.parametrize(
    ("name", "error_type", "message"),
    [
        ("mute", "Mute", "Mute"),
        ("generator exit", "GeneratorExit", "GeneratorExit"),
        ("interrupt", "KeyboardInterrupt", "KeyboardInterrupt"),
        ("base", "BaseException", "base"),
        ("nothing said", "ValueError", "ValueError"),
        ("surrogate", "ValueError", "\ud800"),
    ],
)
def test_odd_errors_are_errors(odd: Driven, how: str, name: str, error_type: str, message: str) -> None:
    told = odd.ask(how, name)
    assert (told["status"], told["error_type"], told["error_message"]) == ("error", error_type, message)


def test_wrong_arguments_are_an_error(plain: Driven) -> None:
    told = plain.ask("sleep", 1, 2, 3)
    assert (told["status"], told["error_type"]) == ("error", "TypeError")


def test_an_exit_of_a_handler_is_an_error_and_the_process_lives_on(plain: Driven, odd: Driven) -> None:
    before = plain.ask("pid")["result"]
    told = plain.ask("leave")
    assert (told["status"], told["error_type"], told["error_message"]) == ("error", "SystemExit", "3")
    assert plain.ask("pid")["result"] == before
    assert odd.ask("leave_async")["error_type"] == "SystemExit"
    assert odd.ask("decorated", 1)["status"] == "success"


@pytest.mark.parametrize("name", ["nan", "set", "circle", "digits", "coroutine"])
def test_a_result_that_cannot_be_written_is_an_error(odd: Driven, name: str) -> None:
    told = odd.ask("result", name)
    assert (told["status"], told["error_type"], told["result"]) == ("error", "ResultNotSerialisable", None)
    assert "not serialisable" in told["error_message"]


def test_an_answer_over_the_limit_is_an_error(odd: Driven) -> None:
    told = odd.ask("result", "large")
    assert (told["status"], told["error_type"]) == ("error", "ResultTooLarge")
    assert "16,777,216 are allowed" in told["error_message"]
    assert odd.ask("raise", "long")["error_type"] == "ResultTooLarge"


def test_a_handler_that_closes_its_output_harms_nobody() -> None:
    with executor("tests.executors.odd_handlers") as one:
        assert one.ask("close_everything")["result"] == "closed"
        assert one.ask("builtin", 1, 2)["result"] == 2
        assert one.end() == 0


@pytest.mark.parametrize("handler", ["sleep", "sleep_async"])
def test_passing_the_deadline_is_timeout_and_the_process_lives_on(plain: Driven, handler: str) -> None:
    started = time.monotonic()
    told = plain.ask(handler, 3600, deadline=0.4)
    assert time.monotonic() - started < LIMIT
    assert (told["status"], told["error_message"]) == ("timeout", "the deadline has passed")


@pytest.mark.parametrize("handler", ["block_async", "block_callback", "refuse_to_end"])
def test_a_coroutine_that_blocks_is_stopped_as_well(odd: Driven, handler: str) -> None:
    told = odd.ask(handler, 3600, deadline=0.4)
    assert (told["status"], told["error_message"]) == ("timeout", "the deadline has passed")
    assert odd.ask("decorated", 1)["status"] == "success"


def test_a_coroutine_whose_time_is_up_can_tidy_up(odd: Driven, tmp_path: Path) -> None:
    def tidies_up(mark: Path) -> bool:
        assert odd.ask("tidy_async", str(mark), deadline=0.4)["status"] == "timeout"
        return mark.exists() and mark.read_text() == "tidied"

    # It has ten milliseconds for that, in which a busy machine may give it no turn; but not every time.
    assert any(tidies_up(tmp_path / f"mark{number}") for number in range(20)), "not once in twenty times"


def test_an_alarm_does_not_outlive_its_job(plain: Driven) -> None:
    assert plain.ask("echo", deadline=2)["status"] == "success"
    assert plain.ask("sleep", 2.2)["result"] == "slept"


@pytest.mark.parametrize("deadline", [-1, 0, "0001-01-01T00:00:00Z"])
def test_nothing_is_begun_that_is_late_already(plain: Driven, tmp_path: Path, deadline: Any) -> None:
    told = plain.ask("mark", str(tmp_path / "mark"), "x", deadline=deadline)
    assert (told["status"], told["error_message"]) == ("timeout", "the deadline has passed")
    assert not (tmp_path / "mark").exists()


def test_a_deadline_may_be_as_far_away_as_calendars_go(plain: Driven) -> None:
    assert plain.ask("sleep_async", 0.01, deadline="9999-12-31T23:59:59Z")["status"] == "success"
    assert plain.ask("sleep", 0.01, deadline="9999-12-31T23:59:59Z")["status"] == "success"


@pytest.mark.parametrize(
    ("line", "job_id", "error_type"),
    [
        (b"nonsense", "unknown", "bad_request"),
        (b"", "unknown", "bad_request"),
        (b"\xff\xfe", "unknown", "bad_request"),
        (b'{"job_id": "t3", "function_name": }', "t3", "bad_request"),
        (b'{"job_id": "t3", "protocol_version": "2", "function_name": "echo"}', "t3", "unsupported_protocol"),
        (b'{"job_id": "t3", "protocol_version": "1", "function_name": "echo", "args": 1}', "t3", "bad_request"),
        (b'{"job_id": "t3", "args": ' + b"[" * 100_000, "t3", "bad_request"),
    ],
)
def test_a_malformed_request_is_answered_with_the_id_that_can_be_read(
    plain: Driven, line: bytes, job_id: str, error_type: str
) -> None:
    plain.send(line + b"\n")
    told = plain.answer()
    assert (told["job_id"], told["status"], told["error_type"]) == (job_id, "error", error_type)


def test_a_request_over_the_limit_is_answered_once_and_the_next_one_is_served(plain: Driven) -> None:
    plain.send(b'{"job_id": "huge", "args": ["' + b"x" * 17_000_000 + b'"]}\n')
    told = plain.answer()
    assert (told["job_id"], told["error_type"]) == ("huge", "bad_request")
    assert "too long" in told["error_message"]
    assert plain.ask("echo", job_id="next")["job_id"] == "next"


def test_an_unknown_handler_is_named_with_those_there_are(plain: Driven) -> None:
    told = plain.ask("nobody")
    assert (told["status"], told["error_type"]) == ("error", "handler_not_found")
    assert "'nobody'" in told["error_message"]
    assert "echo" in told["error_message"]


def test_requests_that_come_at_once_are_answered_in_turn(plain: Driven) -> None:
    plain.send(b"".join(request("echo", number, job_id=f"t{number}") for number in range(50)))
    assert [plain.answer()["job_id"] for _ in range(50)] == [f"t{number}" for number in range(50)]


def test_at_the_end_of_its_input_it_finishes_answers_and_exits_with_0() -> None:
    with executor() as one:
        one.send(request("sleep", 0.3))
        one.process.stdin.close()  # type: ignore[union-attr]
        assert one.answer()["result"] == "slept"
        assert one.wait() == 0


def test_the_last_line_needs_no_end() -> None:
    with executor() as one:
        one.send(request("echo", 1).rstrip(b"\n"))
        one.process.stdin.close()  # type: ignore[union-attr]
        assert one.answer()["result"]["args"] == [1]
        assert one.wait() == 0


def test_an_orchestrator_that_has_gone_is_no_traceback() -> None:
    with executor() as one:
        assert one.ask("echo")["status"] == "success"
        one.process.stdout.close()  # type: ignore[union-attr]
        one.send(request("echo"))
        assert one.wait() == 1
        assert one.said == ["executor: the orchestrator has gone"]


def test_told_to_stop_while_it_waits_it_goes_at_once() -> None:
    with executor() as one:
        one.ask("echo")
        one.process.terminate()
        assert one.wait() == 0


# One that is not gone in time ends itself. On a busy machine the last alarm may strike when Python has put its
# handlers away already.
CUT_OFF, STRUCK_LATE = 128 + signal.SIGTERM, -signal.SIGALRM


@pytest.mark.parametrize("handler", ["sleep", "sleep_async"])
def test_told_to_stop_it_finishes_what_it_can_in_two_seconds(handler: str) -> None:
    def finishes() -> bool:
        with executor() as one:
            one.ask("echo")
            one.send(request(handler, 0.5, "it has begun") + request("echo", job_id="never begun"))
            one.heard("it has begun")
            one.process.terminate()
            code = one.wait()
            assert code in {0, CUT_OFF, STRUCK_LATE}
            if code != 0:
                return False
            told = one.answer()
            assert one.rest() == b""
            return bool(told["result"] == "slept")

    # A machine that stands still for a second leaves it no time for what it could have finished; but not every time.
    assert any(finishes() for _ in range(20)), "not once in twenty times"


COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}  # nobody is there
STOPPED: list[tuple[str, list[Any], dict[str, str], set[int]]] = [
    ("handlers", ["sleep", 3600, "it has begun"], {}, {0, CUT_OFF}),
    ("handlers", ["sleep_async", 3600, "it has begun"], {}, {0, CUT_OFF}),
    ("odd_handlers", ["block_async", 3600, "it has begun"], {}, {0, CUT_OFF}),
    ("handlers", ["stubborn", 3600, "it has begun"], {}, {CUT_OFF}),
    ("odd_handlers", ["linger"], {}, {CUT_OFF}),
    ("handlers", ["echo"], COLLECTOR, {0, CUT_OFF}),
]
# The first of them can be ended, and say so.
LISTENING = 3


def test_told_to_stop_it_is_gone_in_two_seconds_whatever_it_does() -> None:
    answered: set[int] = set()
    # Four tenths of a second remain for the answer, in which a busy machine may give it no turn; but not every time.
    for _ in range(20):
        answered |= those_who_answer_when_they_are_told_to_stop()
        if len(answered) == LISTENING:
            break
    assert answered == set(range(LISTENING)), "not once in twenty times"


def those_who_answer_when_they_are_told_to_stop() -> set[int]:
    """All are told at once, and are gone in time."""
    with ExitStack() as stack:
        running = [stack.enter_context(executor(f"tests.executors.{one}", **env)) for one, _, env, _ in STOPPED]
        for one, (_, job, _, _) in zip(running, STOPPED, strict=True):
            one.ask("nobody")
            one.send(request(*job, deadline=3000))
            one.heard("it has begun") if "it has begun" in job else one.answer()
        started = time.monotonic()
        for one in running:
            one.process.terminate()
            one.process.send_signal(signal.SIGTERM)
        codes = [one.wait() for one in running]
        assert time.monotonic() - started < 2 + BUSY
        for code, (name, job, _, expected) in zip(codes, STOPPED, strict=True):
            assert code in expected | {STRUCK_LATE}, f"{name} {job}"
        answered = {number for number, code in enumerate(codes[:LISTENING]) if code != CUT_OFF}
        for number in answered:
            assert running[number].answer()["error_message"] == "the executor was told to stop"
    return answered


def test_frozen_until_its_time_is_up_it_is_gone_all_the_same() -> None:
    with ExitStack() as stack:
        running = [stack.enter_context(executor("tests.executors.odd_handlers")) for _ in range(4)]
        for one in running:
            one.ask("linger")  # the alarm may be given to the thread that this leaves behind
            one.process.terminate()
        time.sleep(0.1)  # in which most of them hear it
        for one in running:
            one.process.send_signal(signal.SIGSTOP)
        time.sleep(2.2)  # what is tested is an alarm that comes meanwhile
        for one in running:
            one.process.send_signal(signal.SIGCONT)
        assert {one.wait() for one in running} <= {CUT_OFF, STRUCK_LATE}


def test_spans_continue_the_trace_of_the_request() -> None:
    with executor("tests.executors.traced_handlers:handlers") as one:
        carried = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}
        told = one.ask("current", trace_context=carried, queue_name="q", attempt=2)
        assert told["result"] == TRACE
        one.ask("again", trace_context=carried)
        one.ask("fail", trace_context={"traceparent": "rubbish"})
        assert one.ask("current", trace_context={"traceparent": 7})["status"] == "success"
        assert one.end() == 0
    spans = [json.loads(line) for line in one.said if line.startswith("{")]
    assert {span["name"] for span in spans} == {"rrq.executor"}
    first, again, failed, _ = spans
    assert (first["context"]["trace_id"], first["parent_id"]) == (f"0x{TRACE}", f"0x{PARENT}")
    assert "vendor" in first["context"]["trace_state"]
    assert first["kind"] == "SpanKind.CONSUMER"
    assert first["attributes"] == {
        "rrq.job_id": "t0",
        "rrq.function": "current",
        "rrq.queue": "q",
        "rrq.attempt": 2,
        "rrq.outcome": "success",
    }
    assert (again["attributes"]["rrq.outcome"], again["status"]["status_code"]) == ("retry", "ERROR")
    assert (failed["attributes"]["error.type"], failed["parent_id"]) == ("ValueError", None)
    assert "secret" not in json.dumps(failed["attributes"])
    assert failed["status"]["description"] == "a secret that is not in the attributes: amqp://•••@broker"
    assert "hunter2" not in json.dumps(failed)


@pytest.mark.parametrize("handler", ["remember", "remember_async"])
def test_every_job_has_context_variables_and_a_trace_of_its_own(handler: str) -> None:
    traces = [f"{number:032x}" for number in (1, 2, 3)]
    with executor("tests.executors.traced_handlers:handlers") as one:
        told = [one.ask(handler, trace_context={"traceparent": f"00-{trace}-{PARENT}-01"}) for trace in traces]
    assert [job["result"] for job in told] == [["none", trace] for trace in traces]


def test_the_runtime_loads_nothing_but_the_standard_library() -> None:
    with executor("tests.executors.odd_handlers") as one:
        one.ask("decorated", 1)
        loaded = one.ask("modules")["result"]
    foreign = (
        {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"engines", "tests", "__mp_main__"}
    )
    # What a virtual environment loads into every process is its own affair.
    assert {name for name in foreign if not name.startswith(("_", "distutils-"))} <= {"sitecustomize"}
    assert [name for name in loaded if name.startswith("engines.")] == [
        "engines.executors",
        *(f"engines.executors.{name}" for name in ("handlers", "lines", "protocol", "runtime", "telemetry")),
    ]


def test_it_runs_where_nothing_but_the_standard_library_is_installed() -> None:
    with executor("tests.executors.handlers", "-S", OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as one:
        assert one.ask("echo", 1)["status"] == "success"
        assert one.end() == 0


@pytest.mark.parametrize(
    ("handlers", "told"),
    [
        ("tests.executors.nowhere", "No module named 'tests.executors.nowhere'"),
        ("tests.executors.handlers:nothing", "has no 'nothing'"),
        ("tests.executors.handlers:os", "is a module, not a HandlerRegistry"),
        ("tests.executors.broken_handlers", "ZeroDivisionError: division by zero"),
        ("tests.executors.test_runtime.x", "cannot be imported"),
        ("", "Empty module name"),
        (".relative", "cannot be imported"),
    ],
)
def test_handlers_that_cannot_be_loaded_are_one_clear_line(handlers: str, told: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "engines.executors", "--handlers", handlers],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 78
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("executor: ")
    assert told in line


def test_its_help_is_for_people() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "engines.executors", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--handlers MODULE[:REGISTRY]" in shown.stdout

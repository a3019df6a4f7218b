"""What every command has in common: text for people, JSON for programs, refusals in one line, exit codes."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.test import Client

from engines import pipelines, transactions, workers
from engines.models import Pipeline
from ergon_site.access.cli import tables
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.progress import LiveLine
from ergon_site.access.models import AuditEntry
from tests import processes
from tests.commands import ask, run
from tests.factories import make_pipeline
from tests.processes import manage

# The verbs behind them are tested on both databases; what they print is the same on either.
pytestmark = [pytest.mark.django_db, pytest.mark.once]

REASONED = [
    ["pause", "orders"],
    ["resume", "orders"],
    ["cancel", "one"],
    ["replay", "one"],
    ["dead_letters", "discard", "1"],
    ["dead_letters", "replay", "1"],
    ["policy", "set", "default"],
    ["policy", "activate", "default", "1"],
    ["schedule", "pause", "nightly"],
    ["schedule", "resume", "nightly"],
]
UNKNOWN = [
    (["pause", "nothing"], "no pipeline named 'nothing'"),
    (["submit", "nothing", "--payload", "1"], "no pipeline named 'nothing'"),
    (["explain", "nothing"], "no transaction 'nothing'"),
    (["cancel", "nothing"], "no transaction 'nothing'"),
    (["replay", "nothing"], "no transaction 'nothing'"),
    (["dead_letters", "show", "7"], "no dead letter 7"),
    (["policy", "show", "nothing"], "no policy named 'nothing'"),
    (["policy", "activate", "default", "99"], "'default' has no version 99"),
    (["schedule", "pause", "nothing"], "no schedule named 'nothing'"),
]


@pytest.mark.parametrize("arguments", REASONED)
def test_a_command_whose_verb_is_written_down_asks_for_a_reason(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match="the following arguments are required: --reason"):
        call_command(*arguments)
    with pytest.raises(CommandError, match="must be a text of 1 to 1000 characters"):
        call_command(*arguments, "--reason", "  ")


@pytest.mark.parametrize(("arguments", "words"), UNKNOWN)
def test_what_is_unknown_is_refused_in_one_line(arguments: list[str], words: str) -> None:
    reason = [] if arguments[0] in {"submit", "explain"} or "show" in arguments else ["--reason", "why"]
    with pytest.raises(CommandError, match=words) as refusal:
        call_command(*arguments, *reason)
    assert "\n" not in str(refusal.value)
    assert refusal.value.returncode == 1


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_exit_codes_tell_usage_from_refusal() -> None:
    usage = manage("pause", "orders")
    refusal = manage("pause", "orders", "--reason", "flood")
    assert (usage.returncode, refusal.returncode) == (2, 1)
    assert refusal.stderr.splitlines() == [
        "CommandError: there is no pipeline named 'orders': create it with manage.py pipeline create orders --task TASK"
    ]
    assert refusal.stdout == ""


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pause", "orders"], "manage.py pause: the following arguments are required: --reason"),
        (["submit"], "manage.py submit: the following arguments are required: PIPELINE"),
        (["pipeline", "create", "x", "--taks", "y"], "manage.py pipeline create: one of the arguments --task"),
        (["migrate", "--nonsense"], "manage.py migrate: unrecognized arguments: --nonsense"),
    ],
)
def test_wrong_usage_is_one_line_that_says_where_the_options_are(arguments: list[str], words: str) -> None:
    refused = manage(*arguments)
    (line,) = refused.stderr.splitlines()
    assert refused.returncode == 2
    assert line.startswith(words)
    assert line.endswith("--help lists the options")


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_the_command_that_a_refusal_suggests_can_be_typed_as_it_is() -> None:
    variables = {"ERGON_TASKS": "tests.tasks"}
    refused = processes.manage("submit", "orders", "--payload", "1", **variables)
    suggested = refused.stderr.strip().partition("create it with manage.py ")[2]
    assert suggested.startswith("pipeline create orders --task ")
    known = refused.stderr.strip().partition("TASK is one of ")[2].split(", ")
    command = suggested.partition(",")[0].replace("TASK", known[0] or "TASK").split()
    assert processes.manage(*command, **variables).returncode == 0
    assert processes.manage("submit", "orders", "--payload", "1", **variables).returncode == 0


def test_api_clients_are_given_no_hints_for_a_shell(client: Client, token: str) -> None:
    answer = client.post(
        "/api/v1/transactions",
        {"pipeline": "ghost", "payload": 1},
        content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )
    assert (answer.status_code, answer.json()["code"]) == (404, "pipeline_unknown")
    assert "manage.py" not in answer.content.decode()


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_a_task_that_nobody_has_is_warned_of_where_it_is_named_and_where_it_is_used() -> None:
    warning = "warning: there is no task 'shop.typo' here: only a worker that has it can run the pipeline 'orders'"
    for command in (["pipeline", "create", "orders", "--task", "shop.typo"], ["submit", "orders", "--payload", "1"]):
        done = processes.manage(*command)
        assert (done.returncode, done.stderr.startswith(warning)) == (0, True), done.stderr
        assert len(done.stderr.splitlines()) == 1
    workers.enrol(["orders"])
    assert processes.manage("submit", "orders", "--payload", "1").stderr == ""
    assert (
        processes.manage("pipeline", "amend", "orders", "--task", "tests.act", ERGON_TASKS="tests.tasks").stderr == ""
    )


def test_bytes_that_are_no_text_are_refused_in_words() -> None:
    with pytest.raises(CommandError, match="there is no transaction"):
        call_command("explain", "\udcff")
    make_pipeline()
    with pytest.raises(CommandError, match="an argument holds bytes that are not UTF-8"):
        call_command("pause", "orders", "--reason", "\udcff")


@pytest.mark.once
@pytest.mark.parametrize("command", ["status", "consume", "maintain", "forward"])
def test_a_database_without_tables_is_told_in_one_line(tmp_path: Any, command: str) -> None:
    answer = manage(command, DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
    assert answer.returncode == 69
    assert "the database is not up to date: run manage.py migrate (it is SQLite" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_ids_that_are_there_already_are_not_told_as_new(tmp_path: Path) -> None:
    make_pipeline()
    (tmp_path / "lines").write_text('{"payload": 1, "id": "once"}\n{"payload": 2, "id": "twice"}\n')
    for told in ("2 submitted in", "0 new, 2 already there in"):
        terminal = Terminal()
        call_command("submit", "orders", "--input", str(tmp_path / "lines"), stdout=io.StringIO(), stderr=terminal)
        assert told in terminal.getvalue()


@pytest.mark.once
def test_every_command_has_a_help_text_and_every_option_its_line() -> None:
    names = [name for name, app in get_commands().items() if app == "engines"]
    assert len(names) >= 14
    for name in names:
        command = load_command_class("engines", name)
        parser = command.create_parser("manage.py", name)
        assert command.help.endswith(".")
        assert [action for action in parser._actions if not action.help and action.dest != "verb"] == []


def test_json_can_be_asked_for_before_and_after_the_verb() -> None:
    make_pipeline()
    before = json.loads(run("pipeline", "--json", "list"))
    assert before == ask("pipeline", "list")
    assert before[0]["name"] == "orders"


def test_a_pipeline_is_made_changed_and_listed() -> None:
    made = ask("pipeline", "create", "mail", "--task", "mail.send", "--direction", "outbound", "--priority", "-3")
    assert (made["policy"], made["priority"], made["direction"]) == ("default-producer", -3, "outbound")
    changed = ask("pipeline", "amend", "mail", "--executor", "go", "--disable", "--keep-failed", "5", "--reason", "why")
    assert (changed["task"], changed["executor"], changed["enabled"]) == (None, "go", False)
    assert (changed["priority"], changed["keep_failed_days"]) == (-3, 5)
    table = run("pipeline", "list")
    assert "executor go" in table
    assert "disabled" in table
    entries = AuditEntry.objects.filter(target="pipeline mail").order_by("id")
    assert [(entry.action, entry.actor, entry.reason) for entry in entries] == [
        ("pipeline.create", actor(), ""),
        ("pipeline.amend", actor(), "why"),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "one of the arguments --task --executor is required"),
        (["--task", "a", "--executor", "b"], "not allowed with argument"),
        (["--task", "x" * 201], "must be a text of 1 to 200 characters"),
        (["--task", "a", "--priority", "3000000000"], "must be a whole number from"),
        (["--task", "a", "--direction", "up"], "invalid choice: 'up'"),
        (["--task", "a", "--policy", "nothing"], "no policy named 'nothing'"),
        (["--task", "a", "--policy", "default-producer"], "needs a consumer policy"),
    ],
)
def test_a_pipeline_that_cannot_be_is_refused(options: list[str], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        call_command("pipeline", "create", "orders", *options)
    assert not Pipeline.objects.exists()


def test_a_list_says_whether_this_host_knows_the_task() -> None:
    make_pipeline("known", task="tests.commands.known")
    make_pipeline("foreign", task="elsewhere")

    import engines

    engines.task("tests.commands.known")(engines.ConsumerTask)
    assert {row["name"]: row["task_known"] for row in ask("pipeline", "list")} == {"known": True, "foreign": False}


def test_a_pipeline_is_paused_and_resumed() -> None:
    make_pipeline()
    assert run("pause", "orders", "--reason", "flood") == "paused orders\n"
    assert pipelines.find("orders").pause_reason == "flood"
    assert "flood" in run("pipeline", "list")
    assert ask("resume", "orders", "--reason", "dry") == {"name": "orders", "paused": False}


def test_what_others_wrote_cannot_move_the_terminals_cursor() -> None:
    make_pipeline()
    transactions.submit("orders", 1, id="\x1b[2Jgone")
    assert "\x1b" not in run("explain", "\x1b[2Jgone")


@pytest.mark.once
def test_tables_are_aligned_and_cut_only_on_a_terminal() -> None:
    rows = [["a", 1, True, None], ["long" * 10, 12_345, False, ["x", "y"]]]
    headings = ["name", "count", "is on", "tags"]
    lines = tables.table(headings, rows)
    assert lines[0] == f"{'NAME'.ljust(40)}  {'COUNT':>6}  IS ON  TAGS"
    assert lines[1] == f"{'a'.ljust(40)}  {'1':>6}  yes    -"
    assert lines[2].endswith("12,345  no     x, y")
    assert max(map(len, tables.table(headings, rows, width=40))) <= 40
    assert "…" in tables.table(headings, rows, width=40)[2]
    assert tables.table(["n"], [["x" * 30]], width=5)[1] == "xxxxxxxxxxx…"


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


class Wrapped(Terminal):
    def write(self, text: str, _style: Callable[[str], str] = str, _ending: str = "") -> int:
        return super().write(text)


@pytest.mark.once
def test_a_live_line_is_shown_on_a_terminal_alone() -> None:
    terminal, file = Wrapped(), io.StringIO()
    for stream in (terminal, file):
        line = LiveLine(stream)
        line.show("5 submitted")
        line.show("too soon")
        line.end()
    assert "5 submitted" in terminal.getvalue()
    assert "too soon" not in terminal.getvalue()
    assert file.getvalue() == ""

"""`manage.py submit`: JSON Lines in, one id a line out, and never a line half done."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from engines import transactions
from engines.management.commands import submit
from engines.models import TransactionRecord
from tests.commands import run, running
from tests.factories import make_pipeline

# The verbs behind them are tested on both databases; what they print is the same on either.
pytestmark = [pytest.mark.django_db, pytest.mark.once]


@pytest.fixture
def lines(tmp_path: Path) -> Any:
    """Writes lines to a file and names it."""

    def write(*values: Any) -> str:
        texts = (value if isinstance(value, str) else json.dumps(value) for value in values)
        (tmp_path / "lines").write_text("\n".join(texts) + "\n")
        return str(tmp_path / "lines")

    return write


def test_each_line_becomes_a_transaction_and_prints_its_id(lines: Any) -> None:
    make_pipeline()
    full = {
        "payload": {"n": 1},
        "id": "one",
        "priority": 7,
        "available_at": "2030-01-02T03:04:05+01:00",
        "dedupe_key": "k",
        "correlation_id": "c",
        "metadata": {"a": 1},
    }
    printed = run("submit", "orders", "--input", lines(full, "", {"payload": None}, "  ")).split()
    record = TransactionRecord.objects.get(uid="one")
    assert [printed[0], len(printed)] == ["one", 2]
    assert (record.payload, record.priority, record.dedupe_key, record.correlation_id) == ({"n": 1}, 7, "k", "c")
    assert (record.available_at.isoformat(), record.metadata) == ("2030-01-02T02:04:05+00:00", {"a": 1})
    assert TransactionRecord.objects.get(uid=printed[1]).payload is None


def test_with_json_each_answer_is_an_object_that_tells_the_new_from_the_known(lines: Any) -> None:
    make_pipeline()
    output = run("submit", "orders", "--json", "--input", lines({"payload": 1, "id": "a"}, {"payload": 2, "id": "a"}))
    assert [json.loads(line) for line in output.splitlines()] == [
        {"id": "a", "state": "pending", "is_new": True},
        {"id": "a", "state": "pending", "is_new": False},
    ]


def test_one_can_be_given_on_the_command_line() -> None:
    make_pipeline()
    uid = run("submit", "orders", "--payload", '{"n": 1}').strip()
    assert transactions.find(uid).payload == {"n": 1}
    assert transactions.find(run("submit", "orders", "--payload", "null").strip()).payload is None
    with pytest.raises(CommandError, match="is not JSON"):
        call_command("submit", "orders", "--payload", "{")


BAD = [
    ("{", "line 3: "),
    ("[1]", "line 3: must be an object with a payload"),
    ("{}", "line 3: has no payload"),
    ({"payload": 1, "prority": 2}, "line 3: unknown field 'prority'; there are: payload, id, priority"),
    ({"payload": 1, "priority": "high"}, "line 3: priority must be a whole number, not 'high'"),
    ({"payload": 1, "id": ""}, "line 3: id must be a text of 1 to 200 characters"),
    ({"payload": 1, "metadata": [1]}, "line 3: metadata must be an object"),
    ({"payload": 1, "available_at": "soon"}, "line 3: available_at must be a time with a zone"),
    ({"payload": 1, "available_at": "2030-01-01T00:00:00"}, "line 3: available_at must be a time with a zone"),
    ({"payload": 1, "available_at": "9999-12-31T23:59:59-10:00"}, "line 3: available_at must be a time with a zone"),
    ({"payload": 1, "available_at": 5}, "line 3: available_at must be a time with a zone"),
    ('{"payload": NaN}', "line 3: "),
    ('{"payload": "\\u0000"}', "line 3: the payload holds U.0000"),
    ("[" * 100_000, "line 3: "),
    ({"payload": "x" * 2**20}, "line 3: the payload has 1,048,578 bytes"),
    ({"payload": 1, "id": "taken"}, "line 3: the id 'taken' belongs to a transaction of the pipeline 'other'"),
]


@pytest.mark.parametrize(("bad", "words"), BAD)
def test_a_bad_line_is_refused_by_its_number_and_nothing_after_it_is_submitted(
    bad: Any, words: str, lines: Any
) -> None:
    make_pipeline("orders")
    make_pipeline("other")
    transactions.submit("other", 1, id="taken")
    before, after = {"payload": 1, "id": "before"}, {"payload": 1, "id": "after"}
    with pytest.raises(CommandError, match=words) as refusal:
        run("submit", "orders", "--input", lines(before, "", bad, after))
    assert "1 submitted before it, nothing from it on" in str(refusal.value)
    submitted = TransactionRecord.objects.filter(pipeline__name="orders")
    assert [record.uid for record in submitted] == ["before"]


def test_checking_submits_nothing(lines: Any) -> None:
    make_pipeline()
    assert (
        run("submit", "orders", "--check", "--input", lines({"payload": 1}, {"payload": 2})) == "2 can be submitted\n"
    )
    for bad in ({"payload": 1, "priority": "high"}, "{"):
        with pytest.raises(CommandError, match=r"^line 2: "):
            run("submit", "orders", "--check", "--input", lines({"payload": 1}, bad))
    assert not TransactionRecord.objects.exists()


def test_a_file_that_is_not_there_or_not_text_is_refused_by_name(tmp_path: Path) -> None:
    make_pipeline()
    with pytest.raises(CommandError, match="nowhere: No such file or directory"):
        call_command("submit", "orders", "--input", str(tmp_path / "nowhere"))
    (tmp_path / "binary").write_bytes(b'{"payload": "\xff"}\n')
    with pytest.raises(CommandError, match="line 1: not UTF-8 at byte 14"):
        call_command("submit", "orders", "--input", str(tmp_path / "binary"))


@pytest.mark.once
def test_a_line_without_end_is_refused_before_it_is_read() -> None:
    endless = io.BytesIO(b" " * (submit.LONGEST_LINE + 10))
    with pytest.raises(submit.LineError, match="line 1: longer than 16,777,216 bytes"):
        next(submit.read(endless))


@pytest.mark.django_db(transaction=True)
def test_lines_are_submitted_while_more_are_still_to_come() -> None:
    make_pipeline()
    with running("submit", "orders", ERGON_TASKS="tests.tasks") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.writelines(f'{{"payload": {number}, "id": "t{number}"}}\n' for number in range(1500))
        process.stdin.flush()
        first = [process.stdout.readline().strip() for _ in range(1000)]
        assert (first[0], first[-1], TransactionRecord.objects.count()) == ("t0", "t999", 1000)
        rest, errors = process.communicate("not json\n")
    assert (process.returncode, len(rest.split())) == (1, 500)
    assert errors.startswith("CommandError: line 1501: ")
    assert "1,500 submitted before it, nothing from it on" in errors


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    make_pipeline()
    with running("submit", "orders", ERGON_TASKS="tests.tasks") as process:
        assert process.stdin
        assert process.stdout
        process.stdout.close()
        process.stdin.write('{"payload": 1}\n')
        process.stdin.close()
        assert process.wait(30) == 1
        assert process.stderr
        assert process.stderr.read() == ""


def test_no_line_at_all_is_no_failure() -> None:
    make_pipeline()
    assert run("submit", "orders", "--input", "/dev/null") == ""

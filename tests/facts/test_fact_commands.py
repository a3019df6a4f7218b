"""Zones, boundaries, consumers and facts from a shell: what is made, listed, refused in one line."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from ergon_site.access.models import ApiClient, AuditEntry
from facts import ledger, provisioning
from facts.core.errors import ProvisioningError
from facts.models import Boundary, Consumer
from tests.commands import ask, next_event, run, running
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import manage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("name", ["Werk\u00a0A", "\u5de5\u5834\u3000\u4e00", "\u06a9\u0627\u0631\u200c\u0647\u0627"])
def test_a_zone_is_named_as_its_people_write(name: str) -> None:
    assert ask("zone", "create", name) == {"name": name}


def test_a_boundary_is_made_listed_closed_and_opened() -> None:
    assert ask("zone", "create", PLANT) == {"name": PLANT}
    run("zone", "create", OFFICE, "--reason", "headquarters")
    assert {zone["name"] for zone in ask("zone", "list")} == {OFFICE, PLANT, "local"}
    run("boundary", "create", PLANT, OFFICE, "--row-ceiling", "5", "--byte-ceiling", "9999", "--keep-days", "7")
    [told] = ask("boundary", "list")
    assert (told["row_ceiling"], told["byte_ceiling"], told["keep_days"]) == (5, 9999, 7)
    assert (told["gate"], told["frontier"], told["backlog"], told["source_url"]) == ("normal", -1, 0, None)
    run("boundary", "close", PLANT, OFFICE, "--reason", "the link is mended")
    assert "closed by command:" in run("boundary", "list")
    assert ask("boundary", "open", PLANT, OFFICE, "--reason", "mended")["gate"] == "normal"
    actions = list(AuditEntry.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["zone.create", "zone.create", "boundary.create", "boundary.close", "boundary.open"]


def test_a_deployment_is_a_zone_from_its_first_migration_on() -> None:
    assert [zone["name"] for zone in ask("zone", "list")] == ["local"]
    for _ in range(2):
        assert manage("migrate", ERGON_ZONE=PLANT).returncode == 0
    assert {zone["name"] for zone in ask("zone", "list")} == {"local", PLANT}
    assert manage("zone", "create", PLANT, ERGON_ZONE=PLANT).returncode == 0
    refused = manage("migrate", ERGON_ZONE="x" * 300)
    assert (refused.returncode, refused.stderr) == (
        1,
        "CommandError: ERGON_ZONE: a zone's name has 1 to 256 printable characters, and no blanks around it\n",
    )
    assert not AuditEntry.objects.exists()


def test_a_boundary_may_be_pulled_from_a_peer() -> None:
    for zone in (PLANT, OFFICE):
        run("zone", "create", zone)
    source = ["--source", "https://plant.example", "--token", "plant", "--consumer", "office"]
    assert "pulled from https://plant.example" in run("boundary", "create", PLANT, OFFICE, *source)
    boundary = Boundary.objects.get()
    assert (boundary.source_token_file, boundary.source_consumer) == ("plant", "office")


def test_facts_cannot_be_kept_for_no_day_at_all() -> None:
    for zone in (PLANT, OFFICE):
        run("zone", "create", zone)
    refused = manage("boundary", "create", PLANT, OFFICE, "--keep-days", "0")
    assert refused.returncode != 0
    assert "must be a whole number from 1 to 36500" in refused.stderr.replace(",", "")
    for changes in ({"keep_days": 0}, {"keep_days": None}, {"row_ceiling": 0}, {"byte_ceiling": -1}):
        with pytest.raises(ProvisioningError, match="must be a whole number from 1 to"):
            provisioning.create_boundary(PLANT, OFFICE, by="tests", **changes)
    assert not Boundary.objects.exists()


def test_artifacts_are_pulled_only_where_a_peer_is_named() -> None:
    for zone in (PLANT, OFFICE):
        run("zone", "create", zone)
    with pytest.raises(CommandError, match="name it with --source"):
        run("boundary", "create", PLANT, OFFICE, "--with-artifacts")
    source = ["--source", "https://plant.example", "--token", "plant", "--with-artifacts"]
    run("boundary", "create", PLANT, OFFICE, *source)
    assert ask("boundary", "list")[0]["with_artifacts"] is True


@pytest.mark.parametrize(("start", "cursor"), [("earliest", -1), ("latest", 2), ("0", -1), ("2", 1), ("3", 2)])
def test_a_consumer_begins_where_it_is_told_to(start: str, cursor: int) -> None:
    make_boundary()
    ledger.append_many(draft(number) for number in range(3))
    told = ask("consumer", "create", "erp", "--boundary", PLANT, OFFICE, "--start", start)
    assert (told["cursor"], told["newest"], told["backlog"]) == (cursor, 2, 2 - cursor)
    assert Consumer.objects.get().cursor == cursor
    assert ask("consumer", "list") == [told]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["zone", "create", PLANT], "there is a zone named 'Plant A' already"),
        (["zone", "create", " "], "a zone's name has 1 to 256 printable characters"),
        (["boundary", "create", PLANT, "Mars"], "there is no zone named 'Mars'"),
        (["boundary", "create", PLANT, "Mars One"], "create it with manage.py zone create 'Mars One'"),
        (["boundary", "create", PLANT, OFFICE], "a boundary from 'Plant A' to 'Enterprise' already exists"),
        (["boundary", "create", OFFICE, PLANT, "--source", "http://a.example"], "name its file in ERGON_PEER_TOKENS"),
        (["boundary", "create", OFFICE, PLANT, "--consumer", "a"], "name it with --source"),
        (["boundary", "close", OFFICE, PLANT, "--reason", "r"], "there is no boundary from 'Enterprise' to 'Plant A'"),
        (["consumer", "create", "a", "--boundary", PLANT, OFFICE, "--start", "5"], "there is no offset 5 yet"),
        (["consumer", "create", "a", "--boundary", PLANT, OFFICE, "--start", "first"], "not at 'first'"),
        (["consumer", "create", "a/b", "--boundary", PLANT, OFFICE], "it cannot be 'a/b'"),
        (["consumer", "create", "..", "--boundary", PLANT, OFFICE], "it cannot be '..'"),
        (["facts", "fetch", "nobody"], "there is no consumer named 'nobody'"),
        (["facts", "confirm", "nobody", "1"], "there is no consumer named 'nobody'"),
        (["facts", "append", "--input", "/nowhere"], "/nowhere: No such file or directory"),
        (["forward", "Plant A→Mars", "--drain"], "there is no zone named 'Mars'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: list[str], told: str) -> None:
    make_boundary()
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_facts_go_in_as_json_lines_and_come_out_as_json_lines(tmp_path: Path) -> None:
    make_boundary()
    ledger.append(draft(0))
    run("consumer", "create", "erp", "--boundary", PLANT, OFFICE)
    lines = [json.dumps(one) for one in (draft(0), draft(1), draft(1, object_json=5), draft(2))]
    (tmp_path / "facts.jsonl").write_text("\n".join([*lines[:3], "", "no json", '{"a":1,"a":2}', lines[3]]))
    done = manage("facts", "append", "--input", str(tmp_path / "facts.jsonl"), "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one.get("offset", one.get("code")) for one in told] == [
        0,
        1,
        "conflicting_duplicate",
        "invalid_fact",
        "invalid_fact",
        2,
    ]
    assert (done.returncode, told[2]["line"], told[3]["line"]) == (1, 3, 5)
    assert "3 were refused" in done.stderr
    fetched = [json.loads(line) for line in run("facts", "fetch", "erp", "--limit", "2").splitlines()]
    assert fetched == [{"offset": offset, **draft(offset)} for offset in (0, 1)]
    assert ask("facts", "confirm", "erp", "1") == {"cursor_advanced_to": 1}
    assert len(run("facts", "fetch", "erp").splitlines()) == 1


def test_facts_are_read_from_standard_input() -> None:
    make_boundary()
    with running("facts", "append") as command:
        output, errors = command.communicate(json.dumps(draft(1)), timeout=60)
    assert (output, errors, command.returncode) == ("0 new order-1-released\n", "", 0)


@pytest.mark.once
def test_an_id_that_a_retry_may_not_repeat_is_told_and_kept() -> None:
    make_boundary()
    ids = [str(uuid.uuid4()), "order-1-released", str(uuid.uuid4()), "1741248600.123", str(uuid.uuid4())]
    lines = "\n".join(json.dumps(draft(1, message_id=one)) for one in ids)
    with running("facts", "append", "--json") as command:
        output, errors = command.communicate(lines, timeout=60)
    assert [json.loads(line)["offset"] for line in output.splitlines()] == [0, 1, 2, 3, 4]
    first, second, last = errors.splitlines()
    assert first.startswith(f"warning: line 1: the message id {ids[0]} is a random UUID: a retry")
    assert (
        second
        == "warning: line 4: the message id 1741248600.123 is a timestamp: every retry would have a different one"
    )
    assert (last, command.returncode) == ("warning: 2 more like it: a random UUID", 0)


@pytest.mark.usefixtures("_empty_storage")
def test_a_file_is_put_and_a_fact_refers_to_it(tmp_path: Path) -> None:
    make_boundary()
    (tmp_path / "order.pdf").write_bytes(b"%PDF")
    arguments = ["facts", "put", "files", "order.pdf", str(tmp_path / "order.pdf"), "--media-type", "application/pdf"]
    told = ask(*arguments)
    assert (told["size"], told["media_type"], told["duplicate"]) == (4, "application/pdf", False)
    assert run(*arguments).startswith("repeated sha256:")
    del told["duplicate"]
    assert ledger.append(draft(1, object_json=told)).offset == 0
    (tmp_path / "order.pdf").write_bytes(b"other")
    with pytest.raises(CommandError, match="already exists with other bytes"):
        run(*arguments)


def test_the_forwarder_runs_until_it_is_told_to_stop_and_says_what_it_does() -> None:
    make_boundary()
    with running("forward", "--json") as forwarder:
        ledger.append_many(draft(number) for number in range(10))
        event = next_event(forwarder, "handed_over")
        assert (event["boundary"], event["frontier"] >= 0) == (f"{PLANT} → {OFFICE}", True)
        make_boundary(OFFICE, PLANT)
        ledger.append(draft(1, from_zone=OFFICE, to_zone=PLANT))
        while event["boundary"] != f"{OFFICE} → {PLANT}":  # made while it ran
            event = next_event(forwarder, "handed_over")
        forwarder.terminate()
        assert next_event(forwarder, "stopped")["handed_over"] == 11
        assert forwarder.wait(30) == 0
    assert Boundary.objects.filter(held_by__isnull=False).count() == 0


def test_a_client_that_is_made_for_the_boundary_has_its_four_scopes() -> None:
    provisioning.create_zone(PLANT, by="tests")
    with pytest.raises(CommandError, match=r"There is no zone 'Plant B'; there are: .*Plant A"):
        run("create_api_client", "typo", "--zone", "Plant B", "--target-zone", PLANT)
    for options in (["--zone", PLANT], ["--consumer", "erp"], ["--bucket", "files"]):
        run("create_api_client", options[1], *options)
        client = ApiClient.objects.get(name=options[1])
        assert client.scopes == ["facts:append", "facts:fetch", "objects:put", "objects:get"]
    run("create_api_client", "narrow", "--zone", PLANT, "--scope", "facts:append")
    assert ApiClient.objects.get(name="narrow").scopes == ["facts:append"]


@pytest.mark.once
def test_wrong_usage_is_told_by_its_option() -> None:
    def told(*arguments: str) -> Any:
        done = manage(*arguments)
        return done.returncode, done.stderr.splitlines()[-1]

    code, line = told("forward", "Plant A")
    assert code == 2
    assert line.startswith("manage.py forward: argument BOUNDARY: a boundary is written FROM→TO, not 'Plant A'")
    code, line = told("facts", "fetch", "erp", "--limit", "0")
    assert (code, "must be a whole number from 1 to 1,000" in line) == (2, True)

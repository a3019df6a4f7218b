from ipaddress import ip_network
from pathlib import Path

import pytest

from ergon_site import databases, environment


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (environment.flag, "maybe", "must be 1 or 0, not 'maybe'"),
        (environment.seconds, "soon", "must be a number of seconds above 0"),
        (environment.seconds, "-1", "above 0"),
        (environment.seconds, "inf", "above 0"),
        (environment.json_object, "{", "must be a JSON object"),
        (environment.json_object, "[]", "not list"),
        (environment.executors, "[]", "must be a JSON object, not list"),
        (environment.executors, '{"py": {"command": "x"}}', "cannot be used: the executor 'py': 'command' must be"),
        (environment.header, "X_Client", "must be the name of a header"),
        (environment.header, "X-Client: ", "must be the name of a header"),
        (environment.networks, "10.0.0.1/8", "10.0.0.1/8 has host bits set"),
        (environment.networks, "10.0.0.1,proxy", "must be addresses and networks such as .*'proxy'"),
        (environment.secret_key, "short", "at least 50 characters"),
        (environment.broker, "http://x", "amqp://"),
        (environment.rate, "fast", "must look like 1000/s"),
        (environment.rate, "0/s", "must look like"),
        (environment.trace_url, "host/{trace_id}", "must look like https://host/trace/{trace_id}"),
        (environment.trace_url, "https://host/trace", "must look like https://host/trace/{trace_id}"),
        (databases.database, "mysql://u:p@h/x", "must start with postgresql://"),
        (databases.database, "nonsense", "must look like"),
        (databases.database, "postgresql://u:p@h:port/x", "must look like"),
        (databases.database, "postgresql://u:p@h", "must look like"),
        (databases.database, "sqlite:////no/such/folder/x.sqlite3", "folder that does not exist"),
        (environment.folder, "/dev/null/x", "cannot be made"),
        (environment.artifact_storage(Path("/x")), "{}", "must name a bucket"),
        (environment.artifact_storage(Path("/x")), "artifacts", "must be a JSON object"),
    ],
)
def test_a_bad_value_says_what_was_expected(parse: environment.Parser, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_the_refusal_of_an_address_never_repeats_its_password() -> None:
    with pytest.raises(ValueError, match="must look like") as caught:
        databases.database("postgresql://user:hunter2@host:port/name")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (environment.text, "x", "x"),
        (environment.flag, "Yes", True),
        (environment.flag, "0", False),
        (environment.seconds, "0.5", 0.5),
        (environment.names, " a, ,b ", ("a", "b")),
        (environment.json_object, '{"a": 1}', {"a": 1}),
        (environment.broker, "redis://h", "redis://h"),
        (environment.header, "", ""),
        (environment.header, "X-Client-2", "X-Client-2"),
        (environment.networks, "", ()),
        (environment.networks, "10.0.0.1, ::1", (ip_network("10.0.0.1"), ip_network("::1"))),
        (environment.rate, "600/m", 10.0),
        (environment.trace_url, "", ""),
        (environment.trace_url, "https://host/trace/{trace_id}", "https://host/trace/{trace_id}"),
        (environment.secret_key, "k" * 50, "k" * 50),
    ],
)
def test_a_good_value_is_taken(parse: environment.Parser, text: str, value: object) -> None:
    assert parse(text) == value


def test_postgresql_keeps_its_connections_and_checks_them() -> None:
    parsed = databases.database("postgresql://user:p%40ss@host:6432/name?sslmode=require")
    assert parsed["PASSWORD"] == "p@ss"
    assert (parsed["CONN_MAX_AGE"], parsed["CONN_HEALTH_CHECKS"]) == (None, True)
    assert parsed["OPTIONS"] == {"connect_timeout": 10, "sslmode": "require"}


def test_sqlite_writes_ahead_waits_and_is_durable(tmp_path: Path) -> None:
    options = databases.database(f"sqlite:///{tmp_path}/x.sqlite3")["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
    assert "synchronous=FULL" in options["init_command"]
    assert options["timeout"] > 0


@pytest.mark.parametrize("name", ["a#b", "a?b=c", "a%20b", "a%2Fb", "a b", "ä:b@c", "-"])
def test_the_database_in_the_data_folder_is_where_the_folder_is(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert databases.in_folder(folder)["NAME"] == f"{tmp_path}/{name}/ergon.sqlite3"

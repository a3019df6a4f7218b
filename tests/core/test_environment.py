from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from engines.executors.settings import inherited
from ergon_site import databases, environment, postgresql_address
from ergon_site.access.database import pooler


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
        (environment.session_idle, "59", "must be at least 60 seconds, not '59'"),
        (environment.session_idle, "soon", "must be a whole number above 0"),
        (environment.variables, "BANK_URL,*", "must be names of variables such as BANK_URL or BANK_.* not '\\*'"),
        (environment.variables, "BANK URL", "must be names of variables"),
        (environment.secret_key, "short", "at least 50 characters"),
        (environment.port, "70000", "must be a port from 1 to 65535, not '70000'"),
        (environment.port, "0", "must be a port"),
        (environment.port, "http", "must be a port"),
        (environment.modules, "shop.tasks,9lives", "names of modules such as shop.tasks.* not '9lives'"),
        (environment.modules, "shop..tasks", "not 'shop..tasks'"),
        (environment.modules, "shop/tasks.py", "not 'shop/tasks.py'"),
        (environment.factories, "[]", "must be a JSON object, not list"),
        (environment.factories, '{"a": 1}', "must name a factory such as shop.mail:connect for 'a', not 1"),
        (environment.factories, '{"a": "connect"}', "for 'a', not 'connect'"),
        (environment.factories, '{"a": "shop.mail:"}', "for 'a', not 'shop.mail:'"),
        (environment.factories, '{"a": null}', "for 'a', not None"),
        (environment.broker, "http://x", "amqp://"),
        (environment.broker, "redis:", "must start with amqp://"),
        (environment.broker, "redis://localhost:abc", "must look like redis://user:password@host"),
        (environment.broker, "amqp://localhost:70000//", "a port is a number up to 65535"),
        (environment.broker, "amqp://a:1;amqp://b:x", "must look like"),
        (environment.broker, "amqp://a:1;kafka://b", "must start with"),
        (environment.broker, "redis://[::1/0", "must look like"),
        (environment.rate, "fast", "must look like 1000/s"),
        (environment.rate, "0/s", "must look like"),
        (environment.release, "x" * 101, "must be up to 100 printable characters"),
        (environment.release, "1.0\n", "must be up to 100 printable characters"),
        (environment.trace_url, "host/{trace_id}", "must look like https://host/trace/{trace_id}"),
        (environment.trace_url, "https://host/trace", "must look like https://host/trace/{trace_id}"),
        (databases.database, "mysql://u:p@h/x", "must start with postgresql://"),
        (databases.database, "nonsense", "must look like"),
        (databases.database, "postgresql://u:p@h:port/x", "must look like"),
        (databases.database, "postgresql://u:p@h", "must look like"),
        (databases.database, "postgresql://h:0/x", "must look like"),
        (databases.database, "postgresql://h:65536/x", "must look like"),
        (databases.database, "postgresql://a,,b/x", "must look like"),
        (databases.database, "postgresql://a,b:x/x", "must look like"),
        (databases.database, "postgresql://[::1/x", "must look like"),
        (databases.database, "postgresql://h/x?sslmode", "must look like"),
        (databases.database, "postgresql://h/x?keepalive=1", "has the option 'keepalive', which PostgreSQL's client"),
        (
            databases.database,
            "postgresql://h/x?tcp_user_timeout=soon",
            "a whole number as tcp_user_timeout, not 'soon'",
        ),
        (databases.database, "postgresql://h/x?connect_timeout=-1", "a whole number as connect_timeout"),
        (databases.database, "postgresql://h/x?sslmode=yes", "one of disable, .*verify-full as sslmode, not 'yes'"),
        (databases.database, "postgresql://a,b/x?target_session_attrs=master", "one of any, read-write, .*'master'"),
        (databases.database, "postgresql://h/x?pooler=statement", "one of transaction, session as pooler"),
        (databases.database, "postgresql://h/x?prepared=1", "only together with pooler=transaction"),
        (databases.database, "postgresql://h/x?pooler=transaction&prepared=2", "prepared, which must be 1 or 0"),
        (databases.database, "postgresql://h/x?pooler=transaction&options=-cx%3D1", "must not have the option options"),
        (databases.database, "sqlite:////no/such/folder/x.sqlite3", "folder that does not exist"),
        (environment.folder, "/dev/null/x", "cannot be made"),
        (environment.artifact_storage(Path("/x")), "{}", "must name a bucket"),
        (environment.artifact_storage(Path("/x")), "artifacts", "must be a JSON object"),
    ],
)
def test_a_bad_value_says_what_was_expected(parse: environment.Parser, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (databases.database, "postgresql://user:hunter2@host:port/name"),
        (databases.database, "postgresql://user:hunter2@a:1,b:port/name"),
        (databases.database, "postgresql://user:1/hunter2?x=y@host/name"),
        (databases.database, "postgresql://user:x@1/hunter2?hunter2=y@host/name"),
        (databases.database, "postgresql://user:hunter2?@host/name"),
        (environment.broker, "amqp://user:hunter2@host:port/name"),
    ],
)
def test_the_refusal_of_an_address_never_repeats_its_password(parse: environment.Parser, text: str) -> None:
    with pytest.raises(ValueError, match="must look like") as caught:
        parse(text)
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
        (environment.port, "65535", 65535),
        (environment.modules, " shop.tasks, x ", ("shop.tasks", "x")),
        (environment.factories, '{"a": "b:c", "d": "e.f.g"}', {"a": "b:c", "d": "e.f.g"}),
        (environment.broker, "redis://h", "redis://h"),
        (environment.broker, "redis://:p%40ss@[::1]:6379/0", "redis://:p%40ss@[::1]:6379/0"),
        (environment.broker, "amqp://", "amqp://"),
        (environment.broker, "amqp://u:p@a:1//;amqp://b", "amqp://u:p@a:1//;amqp://b"),
        (environment.header, "", ""),
        (environment.header, "X-Client-2", "X-Client-2"),
        (environment.networks, "", ()),
        (environment.networks, "10.0.0.1, ::1", (ip_network("10.0.0.1"), ip_network("::1"))),
        (environment.rate, "600/m", 10.0),
        (environment.release, "2026-11-17 a1b2c3", "2026-11-17 a1b2c3"),
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
    assert parsed["OPTIONS"] == {**postgresql_address.DEFAULTS, "sslmode": "require"}


def test_a_silent_link_is_noticed_within_half_a_minute_unless_the_address_says_otherwise() -> None:
    options = databases.database("postgresql://host/name")["OPTIONS"]
    assert options["keepalives"] == 1
    assert options["keepalives_idle"] + options["keepalives_interval"] * options["keepalives_count"] <= 30
    assert options["tcp_user_timeout"] <= 30_000
    chosen = "keepalives=0&keepalives_idle=1&keepalives_interval=2&keepalives_count=3&tcp_user_timeout=4000"
    options = databases.database(f"postgresql://host/name?{chosen}&connect_timeout=5")["OPTIONS"]
    ours = [name for name in options if name.startswith(("keepalives", "tcp_"))]
    assert "&".join(f"{name}={options[name]}" for name in ours) == chosen
    assert options["connect_timeout"] == 5


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("postgresql://u:p@h1:5432,h2:5433/name", "h1,h2", "5432,5433"),
        ("postgresql://u:p@h1,h2:5433/name", "h1,h2", ",5433"),
        ("postgresql://u:p@h1:5432,h2/name", "h1,h2", "5432,"),
        ("postgresql://u:p@h1,h2,h3/name", "h1,h2,h3", ""),
        ("postgresql://u:p@[::1]:5432,[fe80::1%25eth0],10.0.0.1:5/name", "::1,fe80::1%eth0,10.0.0.1", "5432,,5"),
        ("postgresql://u:p@[2001:db8::1]/name", "2001:db8::1", ""),
        ("postgres://u:p@h/name", "h", ""),
        ("postgresql://u:p@%2Frun%2Fpostgresql/name", "/run/postgresql", ""),
        ("postgresql:////run/postgresql/name?user=u&password=p", "/run/postgresql", ""),
        ("postgresql:///name?host=/run/postgresql&user=u&password=p", "/run/postgresql", ""),
        ("postgresql:///name?user=u&password=p", "", ""),
    ],
)
def test_hosts_and_ports_are_given_to_the_driver_as_it_takes_them(address: str, host: str, port: str) -> None:
    parsed = databases.database(address)
    assert (parsed["HOST"], parsed["PORT"]) == (host, port)
    assert (parsed["NAME"], parsed["USER"], parsed["PASSWORD"]) == ("name", "u", "p")


@pytest.mark.parametrize("password", ["p@ss:w/rd?#[]%&=+ ,;ä", "a,b", "%41", "@"])
def test_a_password_with_special_characters_is_percent_encoded(password: str) -> None:
    address = f"postgresql://u%40x:{quote(password, safe='')}@h1:1,h2:2/na%2Fme"
    parsed = databases.database(address)
    assert (parsed["USER"], parsed["PASSWORD"], parsed["NAME"]) == ("u@x", password, "na/me")
    assert parsed["HOST"] == "h1,h2"


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("postgresql://h/x", None),
        ("postgresql://a,b/x", "read-write"),
        ("postgresql://a,b/x?target_session_attrs=primary", "primary"),
    ],
)
def test_of_several_hosts_the_one_that_takes_writes_is_used(address: str, wanted: str | None) -> None:
    assert databases.database(address)["OPTIONS"].get("target_session_attrs") == wanted


@pytest.mark.parametrize(
    ("query", "is_shared", "may_prepare"),
    [
        ("", False, True),
        ("?pooler=session", False, True),
        ("?pooler=transaction", True, False),
        ("?pooler=transaction&prepared=1", True, True),
    ],
)
def test_a_pooler_is_declared_in_the_address(query: str, is_shared: bool, may_prepare: bool) -> None:  # noqa: FBT001
    parsed = databases.database(f"postgresql://h/x{query}")
    wrapper = SimpleNamespace(settings_dict=parsed)
    assert (pooler.is_shared(wrapper), pooler.may_prepare(wrapper)) == (is_shared, may_prepare)
    assert parsed["DISABLE_SERVER_SIDE_CURSORS"] is is_shared
    assert parsed["OPTIONS"] == postgresql_address.DEFAULTS  # none of it goes to the driver


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


def test_an_executor_inherits_what_programs_need_and_what_is_named() -> None:
    plain = {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/srv", "OTEL_SERVICE_NAME": "shop", "TZ": "UTC"}
    secret = {"DATABASE_URL": "x", "AWS_SECRET_ACCESS_KEY": "x", "DJANGO_SECRET_KEY": "x", "SMTP_PASSWORD": "x"}
    named = {"BANK_URL": "x", "SHOP_A": "x", "SHOP_B": "x"}
    assert inherited(plain | secret | named) == plain
    assert inherited(plain | secret | named, environment.variables("BANK_URL, SHOP_*")) == plain | named

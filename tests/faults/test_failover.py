"""What happens when a replica takes the place of the primary, with real servers and addresses that name both."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
from django.db import connection

from engines import Transaction
from engines.connectors.broker import BrokerConnector
from ergon_site import embedded
from ergon_site.postgresql_address import DEFAULTS
from tests.commands import hear, next_event
from tests.durable_transactions import consumer, wait_until_started
from tests.engines.test_broker import dead_messages
from tests.facts.drafts import draft
from tests.faults.silent_link import link_to, require_namespaces
from tests.faults.test_silence import (
    APPEND,
    BOUNDARY,
    LOST,
    ORDERS,
    OVERDUE,
    QUICK as BRISK,
    Server,
    frozen,
    in_shell_of,
    site_with_token,
)
from tests.processes import LIMIT, ROOT, database_url, environment, eventually, manage

PREPARE = """
from django.core.management import call_command
call_command("migrate", verbosity=0)
from engines import pipelines, policies
from tests.durable_transactions import QUICK
policies.write("quick", QUICK, kind="consumer", by="tests", reason="test")
pipelines.create("orders", pipelines.Plan(task="tests.act", policy="quick"), by="tests")
pipelines.create("parcels", pipelines.Plan(task="tests.act_async", policy="quick"), by="tests")
"""
ENOUGH = 150
# The state of each, and how many successes of its handler are recorded.
OUTCOMES = """
SELECT t.uid, t.state, (SELECT count(*) FROM engines_attempt a WHERE a.transaction_id = t.id AND a.outcome = 0)
  FROM engines_transactionrecord t
"""


@contextmanager
def new_folder() -> Iterator[Path]:
    """One that the servers' own user may pass through."""
    path = Path(tempfile.mkdtemp(prefix="ergon-failover-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def prepared() -> Iterator[Path]:
    """The data of a server that has been prepared and stopped."""
    with new_folder() as path:
        with embedded.postgres(path, durable=False) as primary:
            done = manage("shell", "-v0", "-c", PREPARE, DATABASE_URL=primary)
            assert done.returncode == 0, done.stderr
        yield path


@pytest.fixture
def folder(prepared: Path) -> Iterator[Path]:
    with new_folder() as path:
        subprocess.run(["cp", "-a", str(prepared), str(path / "first")], check=True)
        yield path


# One waits for an answer, which only keepalives can miss; the other sends after the link is down.
WAITERS = """
import sys, threading, time
from django.db import OperationalError, connection

def wait(name, go):
    connection.ensure_connection()
    print("ready", flush=True)
    began = time.monotonic()
    try:
        with connection.cursor() as cursor:
            if go:
                sys.stdin.readline()
                began = time.monotonic()
            cursor.execute("SELECT pg_sleep(3600)")
    except OperationalError:
        print(name, round(time.monotonic() - began, 1), flush=True)

for name, go in ("receiver", False), ("sender", True):
    threading.Thread(target=wait, args=[name, go]).start()
"""


@dataclass
class Pair:
    """A primary and its streaming replica."""

    folder: Path
    primary: str
    replica: str

    @property
    def address(self) -> str:
        """Of both, the primary first."""
        first, second = urlsplit(self.primary), urlsplit(self.replica)
        hosts = f"{first.hostname}:{first.port},{second.hostname}:{second.port}"
        user = f"{first.username}:{first.password}"
        return f"postgresql://{user}@{hosts}{first.path}?target_session_attrs=read-write"

    def ask(self, address: str, statement: str) -> list[tuple[Any, ...]]:
        with closing(psycopg.connect(address, autocommit=True, connect_timeout=5)) as asking:
            return asking.execute(statement).fetchall()

    def make_synchronous(self) -> None:
        with closing(psycopg.connect(self.primary, autocommit=True)) as asking:
            asking.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            asking.execute("SELECT pg_reload_conf()")
        states = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        eventually(lambda: bool(self.ask(self.primary, states)), "the replica is synchronous")

    def stop_sending(self, order: signal.Signals = signal.SIGSTOP) -> None:
        """The replica gets nothing from now on, and the primary does not know why."""
        for (pid,) in self.ask(self.primary, "SELECT pid FROM pg_stat_replication"):
            os.kill(pid, order)

    def go_on_sending(self) -> None:
        self.stop_sending(signal.SIGCONT)

    def kill_primary(self) -> None:
        server = psutil.Process(int(next(self.folder.glob("*/postgres/data/postmaster.pid")).read_text().split()[0]))
        family = [server, *server.children(recursive=True)]
        for process in family:
            process.kill()
        psutil.wait_procs(family, 10)

    def promote(self) -> None:
        assert self.ask(self.replica, "SELECT pg_promote()") == [(True,)]


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    with (
        embedded.postgres(folder / "first", durable=False) as primary,
        embedded.standby(folder / "second", of=primary) as replica,
    ):
        yield Pair(folder, primary, replica)


@contextmanager
def submitter(address: str, confirmed: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.faults.submitter", str(confirmed), "orders", "parcels"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(DATABASE_URL=address))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def confirmed_in(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")] if file.exists() else []


def fail_over(servers: Pair, before_the_end: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Work on the primary until it dies, and on the replica after it; how many were confirmed before, and then lost."""
    file = servers.folder / "confirmed"
    with (
        consumer("orders", "parcels", DATABASE_URL=servers.address) as consuming,
        submitter(servers.address, file) as submitting,
    ):
        wait_until_started(consuming)
        eventually(lambda: len(confirmed_in(file)) >= ENOUGH, "work is submitted")
        before_the_end()
        servers.kill_primary()
        before = confirmed_in(file)
        servers.promote()
        promoted = time.monotonic()
        eventually(lambda: len(confirmed_in(file)) >= len(before) + ENOUGH, "work is submitted to the new primary")
        print(f"submitting goes on {time.monotonic() - promoted:.1f} s after the promotion")
        submitting.send_signal(signal.SIGTERM)
        assert submitting.wait(30) == 0
        unfinished = "SELECT 1 FROM engines_transactionrecord WHERE state < 2 LIMIT 1"
        eventually(lambda: not servers.ask(servers.replica, unfinished), "all work has ended")
        print(f"all work has ended {time.monotonic() - promoted:.1f} s after the promotion")
        consuming.send_signal(signal.SIGTERM)
        _, errors = consuming.communicate(timeout=30)
        assert consuming.returncode == 0, errors
    outcomes = servers.ask(servers.replica, OUTCOMES)
    assert {(state, successes) for _, state, successes in outcomes} == {(2, 1)}
    kept = {f"{uid}\n" for uid, _, _ in outcomes}
    assert set(confirmed_in(file)[len(before) :]) <= kept
    return len(before), len(set(before) - kept)


@pytest.mark.once
def test_consumers_and_submitters_go_on_at_the_replica_that_is_promoted(folder: Path) -> None:
    with pair(folder) as servers:
        servers.make_synchronous()
        confirmed, lost = fail_over(servers)
    assert confirmed >= ENOUGH
    assert lost == 0


@pytest.mark.once
def test_what_runs_without_end_goes_on_at_the_replica_that_is_promoted_though_the_primary_is_only_frozen(
    folder: Path,
) -> None:
    """`maintain`, `forward` and the web: its kernel still answers for it, and the connections to it stay open."""
    handed = "SELECT count(*) FROM facts_forwardedfact"
    with pair(folder) as servers:
        in_shell_of(servers.primary, BOUNDARY, APPEND.format(number=1))
        common: dict[str, Any] = {"DATABASE_URL": f"{servers.address}&connect_timeout=5", **BRISK}
        with (
            consumer(command="maintain", **common) as maintain,
            consumer(command="forward", **common) as forward,
            site_with_token(**common) as web,
        ):
            next_event(maintain, "leading")
            # Here and below: mostly the first is answered; on a busy machine a fresh server needs more than its second.
            eventually(lambda: web.get(ORDERS).status_code == 200, "it answers")
            eventually(lambda: web.post("/api/v1/facts", json=draft(2)).status_code in {200, 201}, "a fact is in")
            eventually(lambda: servers.ask(servers.replica, handed) == [(2,)], "the replica has it")
            with frozen(Server(servers.primary, folder / "first")):
                servers.promote()
                eventually(lambda: web.post("/api/v1/facts", json=draft(3)).status_code in {200, 201}, "the fact is in")
                eventually(lambda: web.get(ORDERS).status_code == 200, "it can be read")
                hear(maintain, LOST)
                hear(forward, "has not answered within 1 s")
                in_shell_of(servers.replica, OVERDUE)
                while next_event(maintain, "done")["chore"] != "scheduled":
                    pass
                eventually(lambda: servers.ask(servers.replica, handed) == [(3,)], "the next fact is handed over")
                for process in (maintain, forward):
                    process.send_signal(signal.SIGTERM)
                    _, errors = process.communicate(timeout=60)
                    assert process.returncode == 0, errors


WRITE_IN_TIME = """
from django.db import connection
from ergon_site.access.database.calls import DatabaseTimeoutError, time_limit
connection.ensure_connection()
try:
    with time_limit(1), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE written ()")
    print("confirmed")
except DatabaseTimeoutError as error:
    print(error)
"""


@pytest.mark.once
def test_what_a_synchronous_replica_has_not_got_in_time_is_not_confirmed(folder: Path) -> None:
    """A cancelled wait for a replica is no error to PostgreSQL: it confirms the commit, with a warning."""
    with pair(folder) as servers:
        servers.make_synchronous()
        servers.stop_sending()
        try:
            done = manage("shell", "-v0", "-c", WRITE_IN_TIME, DATABASE_URL=servers.primary)
        finally:
            servers.go_on_sending()
    assert "whether the statement was executed is unknown" in done.stdout, done
    assert "confirmed" not in done.stdout


MAKE_QUEUE = """
from engines import pipelines
pipelines.create({name!r}, pipelines.Plan(task="tests.act", policy="quick", connector="broker"), by="tests")
"""
# Each try to insert a dead letter takes a number, whatever becomes of it.
TRIES = "SELECT last_value FROM engines_deadletter_id_seq"
LETTERS = """
SELECT l.uid, g.total, g.open_count, h.count
  FROM engines_deadletter l JOIN engines_deadlettergroup g ON g.id = l.group_id
  JOIN engines_deadletterhour h ON h.group_id = g.id
"""


@pytest.mark.once
def test_a_failure_whose_dead_letter_waits_for_a_replica_has_one_and_is_acknowledged_after_it(folder: Path) -> None:
    """Each try commits on the primary at the latest when its wait for the replica is cancelled."""
    broker, queue = os.environ["CELERY_BROKER_URL"], f"queue-{uuid.uuid4().hex[:8]}"
    mark, gate = folder / "mark", folder / "gate"
    with pair(folder) as servers, closing(BrokerConnector(broker, queue)) as connector:
        made = manage("shell", "-v0", "-c", MAKE_QUEUE.format(name=queue), DATABASE_URL=servers.primary)
        assert made.returncode == 0, made.stderr
        servers.make_synchronous()
        payload = {"mark": str(mark), "until": str(gate), "fail": "broken"}
        connector.dispatch_transactions([Transaction("m", payload)])
        patient = {"ERGON_DATABASE_TIMEOUT": "1", "ERGON_LEASE_SECONDS": "30"}
        with consumer(queue, DATABASE_URL=servers.primary, **patient) as consuming:
            eventually(mark.exists, "the handler runs")
            servers.stop_sending()
            try:
                gate.touch()
                eventually(lambda: servers.ask(servers.primary, TRIES)[0][0] >= 3, "it was tried three times")
                assert dead_messages(broker, queue) == []
            finally:
                servers.go_on_sending()
            eventually(lambda: bool(dead_messages(broker, queue)), "the message is among the dead")
            consuming.send_signal(signal.SIGTERM)
            _, errors = consuming.communicate(timeout=LIMIT)
            assert consuming.returncode == 0, errors
        letters = servers.ask(servers.primary, LETTERS)
    assert letters == [("m", 1, 1, 1)]


DO_ALL = """
from django.db import transaction
from engines import transactions
from engines.conf import settings
from engines.core.outcome import Failure, Later
from engines.models import TransactionRecord
from engines.transactions import Draft, Lease, LeasedTransaction
from ergon_site.access import idempotency
from ergon_site.access.database.calls import DatabaseTimeoutError, time_limit
from ergon_site.access.models import ApiClient
from facts import ledger
from tests.facts.drafts import draft

def submit_in_own_transaction():
    with time_limit(settings().database_timeout), transaction.atomic():
        return transactions.submit("orders", 1, id="one").is_new

def answer_request():
    asked = idempotency.Asked(client_id=ApiClient.objects.get().pk, key="key", digest="digest")
    return not idempotency.answer(asked, lambda: idempotency.Answer(status=200, body={})).is_repeated

def append():
    with time_limit(settings().database_timeout):
        return not ledger.append_many([draft(1)])[0].is_duplicate

def look_for_outcome():
    record = TransactionRecord.objects.get(uid="one")  # as after an attempt that is to be repeated later
    lease = Lease(record.pk, record.fencing_token, 1, record.pipeline_id, None)
    later = Later(0.0, 1, Failure(ValueError()))
    settlement = transactions.Settlement(LeasedTransaction(id="one", payload=1, lease=lease), later)
    with time_limit(settings().database_timeout):
        return record.pk not in transactions.find_written([settlement])

one = {"id": "one", "dedupe_key": "key"}
acts = {
    "submit": lambda: transactions.submit("orders", 1, **one).is_new,
    "by key": lambda: transactions.submit("orders", 1, dedupe_key="key").is_new,
    "many": lambda: transactions.submit_many("orders", [Draft(1, **one), Draft(1, **one)])[0].is_new,
    "together": lambda: transactions.submit_together([("orders", Draft(1, **one))])[0].is_new,
    "own": submit_in_own_transaction,
    "request": answer_request,
    "fact": append,
    "outcome": look_for_outcome,
}
for name, act in acts.items():
    try:
        print(name, "new" if act() else "known")
    except DatabaseTimeoutError:
        print(name, "unknown")
"""
# What does not wait for a replica is there as after a wait that was broken off.
NOT_WAITING = """
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SET synchronous_commit = local")
"""
FOR_REQUESTS_AND_FACTS = """
from ergon_site.access.models import ApiClient
from tests.facts.drafts import make_boundary
make_boundary()
ApiClient.objects.create(name="one", created_by="tests")
"""
ACTS = ["submit", "by key", "many", "together", "own", "request", "fact", "outcome"]


@pytest.mark.once
def test_what_is_repeated_is_not_confirmed_before_a_synchronous_replica_has_it(folder: Path) -> None:
    """Whoever repeats what was not confirmed in time finds it there, and may lose it all the same."""

    def answers(before: str = "", **options: str) -> list[str]:
        done = manage("shell", "-v0", "-c", before + DO_ALL, DATABASE_URL=servers.primary, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with pair(folder) as servers:
        prepared = manage("shell", "-v0", "-c", FOR_REQUESTS_AND_FACTS, DATABASE_URL=servers.primary)
        assert prepared.returncode == 0, prepared.stderr
        servers.make_synchronous()
        servers.stop_sending()
        try:
            first = answers(NOT_WAITING)
            while_it_lags = answers(ERGON_DATABASE_TIMEOUT="1")
        finally:
            servers.go_on_sending()
        again = answers()
    new = ["submit", "request", "fact"]
    assert first == [f"{act} {'new' if act in new else 'known'}" for act in ACTS]
    assert while_it_lags == [f"{act} unknown" for act in ACTS]
    assert again == [f"{act} known" for act in ACTS]


@pytest.mark.once
@pytest.mark.soak
@pytest.mark.parametrize("kind", ["asynchronous", "synchronous"])
def test_what_a_replica_loses_that_gets_nothing_for_a_second(folder: Path, kind: str) -> None:
    def fall_behind() -> None:
        servers.stop_sending()
        time.sleep(1)

    with pair(folder) as servers:
        if kind == "synchronous":
            servers.make_synchronous()
        confirmed, lost = fail_over(servers, fall_behind)
    print(f"{kind} replication lost {lost} of {confirmed} confirmed submits with the sender stopped for a second")
    assert (lost == 0) is (kind == "synchronous")


@pytest.mark.postgresql
@pytest.mark.django_db
def test_the_system_watches_every_connection_for_a_silent_link() -> None:
    connection.ensure_connection()
    with socket.socket(fileno=os.dup(connection.connection.pgconn.socket)) as link:
        assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        found = {
            "keepalives_idle": link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            "keepalives_interval": link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL),
            "keepalives_count": link.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
            "tcp_user_timeout": link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        }
    assert found == {name: DEFAULTS[name] for name in found}


@pytest.mark.soak
@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_silent_link_is_noticed_by_who_waits_and_by_who_sends() -> None:
    require_namespaces()
    address = urlsplit(database_url())
    assert address.port
    with link_to(address.port) as link:
        user = f"{address.username}:{address.password}"
        url = f"postgresql://{user}@{link.address}:{link.port}{address.path}"
        command = link.command(sys.executable, "manage.py", "shell", "-v0", "-c", WAITERS)
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=ROOT, env=environment(DATABASE_URL=url), **pipes) as waiting:
            assert waiting.stdin
            assert waiting.stdout
            assert [waiting.stdout.readline(), waiting.stdout.readline()] == ["ready\n", "ready\n"]
            link.go_down()
            try:
                output, _ = waiting.communicate("go\n", timeout=120)
            finally:
                waiting.kill()
    with connection.cursor() as cursor:  # the server has not noticed
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        cursor.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {others}")
    print(output)
    noticed = dict(line.split() for line in output.splitlines())
    assert noticed.keys() == {"receiver", "sender"}
    assert all(20 < float(seconds) < 60 for seconds in noticed.values())  # minutes to hours without

"""A database that falls silent under what no request and no worker watches: policies of providers, journal, gauges."""

from collections.abc import Callable

import pytest

from tests.faults.test_silence import QUICK, Scene, frozen, in_shell, read_until, running, scene
from tests.processes import LIMIT

__all__ = ["running", "scene"]  # fixtures
pytestmark = pytest.mark.once

ACTS = """
import sys, threading
from django.db import connection
from ergon_site.gauges import Gauges
from providers.active_policy import governing
from providers.calls import journal
from tests.providers.scripted_providers import scripted
from tests.providers.test_settling import outcome

journal.spool(*outcome())
acts = {"policy": lambda: governing(scripted()), "journal": journal.replay, "gauges": lambda: [*Gauges().collect()]}
go = threading.Event()

def act(name):
    connection.ensure_connection()
    say("connected")
    go.wait()
    acts[name]()
    say(name)

def say(word):
    sys.stdout.write(word + "\\n")
    sys.stdout.flush()

for name in acts:
    threading.Thread(target=act, args=[name], daemon=True).start()
input()
go.set()
input()
"""


def test_providers_and_gauges_do_without_a_database_that_is_silent(scene: Callable[..., Scene]) -> None:
    """Also those that read on a connection which was opened before."""
    at = scene(count=0)
    with in_shell(ACTS, DATABASE_URL=f"{at.url}?connect_timeout=5", **QUICK) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert [program.stdout.readline() for _ in range(3)] == ["connected\n"] * 3
        with frozen(at.server):
            program.stdin.write("go on\n")
            program.stdin.flush()
            read_until(program, "policy", "journal", "gauges")
        program.stdin.write("end\n")
        program.stdin.flush()
        assert program.wait(LIMIT) == 0

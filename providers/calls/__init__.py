"""VERBS of provider calls: passing the gate, settling what came of it, and what operators do to both.

Admission is one statement on one row; on PostgreSQL a settlement is one statement too. None of them runs inside the
caller's transaction.
"""

from providers.calls.claiming import claim, kept
from providers.calls.dead_letters import record_dead_letter
from providers.calls.overrides import FORCED_FOR, OrderError, drop_quota, force_closed, force_open, reset, set_quota
from providers.calls.pruning import Pruned, prune
from providers.calls.settling import rate, refuse, rollup, settle
from providers.core.exchange import CallRequest
from providers.database.admitting import admit
from providers.database.sql import LOST, lost_connections_closed, refuse_open_transaction

__all__ = [
    "FORCED_FOR",
    "LOST",
    "CallRequest",
    "OrderError",
    "Pruned",
    "admit",
    "claim",
    "drop_quota",
    "force_closed",
    "force_open",
    "kept",
    "lost_connections_closed",
    "prune",
    "rate",
    "record_dead_letter",
    "refuse",
    "refuse_open_transaction",
    "reset",
    "rollup",
    "set_quota",
    "settle",
]

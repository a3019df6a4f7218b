"""VERBS of provider calls: passing the gate, settling what came of it, and what operators do to both.

Admission is one statement on one row; on PostgreSQL a settlement is one statement too. None of them runs inside the
caller's transaction.
"""

from ergon_site.access.database.calls import DatabaseTimeoutError as DatabaseTimeoutError
from providers.calls.answers import (
    drop_answers as drop_answers,
    keep_answer as keep_answer,
    kept_answers as kept_answers,
    look_up_answer as look_up_answer,
)
from providers.calls.dead_letters import record_dead_letter as record_dead_letter
from providers.calls.journal import (
    answer_to as answer_to,
    is_waiting_for as is_waiting_for,
    known as known,
    replay_known as replay_known,
    replay_same as replay_same,
    spool as spool,
    waiting as waiting,
)
from providers.calls.overrides import (
    FORCED_FOR as FORCED_FOR,
    OrderError as OrderError,
    drop_quota as drop_quota,
    force_closed as force_closed,
    force_open as force_open,
    reset as reset,
    set_quota as set_quota,
)
from providers.calls.pruning import prune as prune, prune_old as prune_old
from providers.calls.rating import board as board, rollup as rollup
from providers.calls.refusing import give_up as give_up, refuse as refuse, stand_in as stand_in
from providers.calls.settling import (
    claim as claim,
    claim_afterwards as claim_afterwards,
    kept as kept,
    settle as settle,
)
from providers.core.exchange import CallRequest as CallRequest
from providers.database.admitting import admit as admit
from providers.database.sql import (
    LOST as LOST,
    answered_within as answered_within,
    is_connected as is_connected,
    lost_connections_closed as lost_connections_closed,
    refuse_open_transaction as refuse_open_transaction,
)

"""VERBS of dead letters: record, replay, discard, reveal; and what is decided for a whole group of them.

A dead letter comes from a pipeline's transaction or from any other source that gives up for good.
"""

from engines.dead_letters.letters import (
    LetterSettledError,
    NotReplayableError,
    audit_target,
    decide,
    discard,
    find,
    find_group,
    is_replayable,
    lock_open,
    payload_of,
    redacted_of,
    resolve_if_empty,
    reveal,
    settle_as_replayed,
)
from engines.dead_letters.recording import DeadLetterDraft, Poison, forget_trends, record, record_failed, record_poison
from engines.dead_letters.replayers import AS_IT_WAS, Fates, replayed_by, replayer_of

__all__ = [
    "AS_IT_WAS",
    "DeadLetterDraft",
    "Fates",
    "LetterSettledError",
    "NotReplayableError",
    "Poison",
    "audit_target",
    "decide",
    "discard",
    "find",
    "find_group",
    "forget_trends",
    "is_replayable",
    "lock_open",
    "payload_of",
    "record",
    "record_failed",
    "record_poison",
    "redacted_of",
    "replayed_by",
    "replayer_of",
    "resolve_if_empty",
    "reveal",
    "settle_as_replayed",
]

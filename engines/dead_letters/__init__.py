"""VERBS of dead letters: record, replay, discard, reveal; and what is decided for a whole group of them.

A dead letter comes from a pipeline's transaction or from any other source that gives up for good.
"""

from engines.dead_letters.letters import (
    NOT_REPLAYABLE as NOT_REPLAYABLE,
    LetterSettledError as LetterSettledError,
    NotReplayableError as NotReplayableError,
    ReplayerUnavailableError as ReplayerUnavailableError,
    audit_target as audit_target,
    decide as decide,
    discard as discard,
    find as find,
    find_group as find_group,
    is_replayable as is_replayable,
    is_whole as is_whole,
    lock_open as lock_open,
    payload_of as payload_of,
    redacted_of as redacted_of,
    resolve_if_empty as resolve_if_empty,
    reveal as reveal,
    settle as settle,
)
from engines.dead_letters.recording import (
    DeadLetterDraft as DeadLetterDraft,
    Poison as Poison,
    forget_trends as forget_trends,
    record as record,
    record_failed as record_failed,
    record_poison as record_poison,
)
from engines.dead_letters.replayers import (
    AS_IT_WAS as AS_IT_WAS,
    replayer_of as replayer_of,
)

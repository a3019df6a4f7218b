"""VERBS: look_up_answer, keep_answer, drop_answers. Answers that are kept for whoever asks the same again.

The row of an answer is the newest for its tenant and its request (operation, version, payload). How long it serves is
for the policy of the reader to say, by the age of the answer; the database's clock tells it.
"""

import json
from typing import Any

import structlog
from django.db.models import QuerySet

from ergon_site.access import audit
from ergon_site.access.database.calls import retry_conflicts, short_transaction
from providers.calls.settling import kept
from providers.core.exchange import CallRequest, Who
from providers.core.steps import Cached
from providers.database import admitting, sql
from providers.models import CachedAnswer, Gate

log = structlog.get_logger("ergon.providers")
# Characters; JSON of ours is ASCII.
LARGEST = 256 * 1024

LOOK_UP = """
SELECT answer, {clock} - answered_at FROM provider_cached_answers
WHERE tenant_id = CAST(%(tenant)s AS text) AND provider_name = CAST(%(provider)s AS text)
  AND capability = CAST(%(capability)s AS text) AND fingerprint = CAST(%(fingerprint)s AS text)
  AND {clock} - answered_at < CAST(%(age)s AS double precision)
"""
KEEP = """
INSERT INTO provider_cached_answers (tenant_id, provider_name, capability, fingerprint, operation, answer, answered_at,
  useful_until)
VALUES (%(tenant)s, %(provider)s, %(capability)s, %(fingerprint)s, %(operation)s, %(answer)s, {clock},
  {clock} + CAST(%(useful)s AS double precision))
ON CONFLICT (tenant_id, provider_name, capability, fingerprint) DO UPDATE SET answer = excluded.answer,
  answered_at = excluded.answered_at, useful_until = excluded.useful_until
"""


def look_up_answer(ticket: CallRequest, age: float) -> Cached | None:
    """The answer to the same request, if there is one that is younger."""
    given = {**admitting.named(ticket.who), "fingerprint": ticket.fingerprint, "age": age}
    for answer, found in sql.rows(LOOK_UP.format(clock=sql.dialect().clock), given):
        return Cached(json.loads(answer), max(0.0, found))
    return None


@retry_conflicts
def keep_answer(ticket: CallRequest, payload: dict[str, Any]) -> None:
    """Keep the provider's answer, in the place of an older one; one that is too large is not kept."""
    answer = kept(payload)
    if len(answer) > LARGEST:
        log.info("provider answer too large to keep", size=len(answer), **ticket.who._asdict())
        return
    given = {
        **admitting.named(ticket.who),
        "fingerprint": ticket.fingerprint,
        "operation": ticket.operation,
        "answer": answer,
        "useful": ticket.policy.useful_for,
    }
    sql.rows(KEEP.format(clock=sql.dialect().clock), given)


@retry_conflicts
@short_transaction()
def drop_answers(who: Who, *, by: str, reason: str) -> int:
    """Forget all answers of a capability, or of an account: the next calls ask the provider. How many there were."""
    count, _ = kept_answers(who).delete()
    audit.record(actor=by, action="cache.drop", target=who.title[:300], reason=reason, before={"answers": count})
    return count


def kept_answers(who: Who) -> QuerySet[CachedAnswer]:
    """The answers that are kept of a capability, or of all that share an account."""
    if not who.is_account:
        return CachedAnswer.objects.filter(**who._asdict())
    sharing = Gate.objects.filter(provider_name=who.provider_name, account=who.tenant_id).values("tenant_id")
    return CachedAnswer.objects.filter(provider_name=who.provider_name, tenant_id__in=sharing)

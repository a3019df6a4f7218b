"""VERBS: refuse, stand_in, give_up. How calls end that make no attempt: refused, answered otherwise, given up."""

from ergon_site.access.database.calls import retry_conflicts, short_transaction
from providers.calls import dead_letters, rating
from providers.calls.rating import board
from providers.calls.settling import carry_out, given_of, kept, look_back, together
from providers.core.exchange import CallRequest, Outcome, Source
from providers.core.gate import NOTHING, Admission, Decision
from providers.core.steps import GiveUp, Refuse, StandIn
from providers.database import admitting, gates, settlements, sql, statements
from providers.models import ProviderExecutionMetric
from providers.models.calls import ClaimState

# What an execution says of itself that made no attempt.
NOT_CALLED = {"http_status": None, "lease": 0.0, "budget_ms": None}


def refuse(ticket: CallRequest, step: Refuse, admission: Admission | None = None, *, is_repeat: bool = False) -> None:
    """Write down that an attempt was not made, and let go of what it held. `admission` is the gate's, if it refused."""
    gate_id = (_refuse_again if is_repeat else _refuse)(ticket, step, admission)
    if not step.ends_execution:  # which the rates tell of
        return
    if rating.is_shown_at_once():
        rating.rate(gate_id, ticket.who)
    else:
        board.mark(ticket.who)


@retry_conflicts
@short_transaction()
def _refuse_again(ticket: CallRequest, step: Refuse, admission: Admission | None) -> int:
    gate_id, before = look_back(ticket, step.attempt)
    return gate_id if before is not None else _refuse(ticket, step, admission)


@retry_conflicts
def _refuse(ticket: CallRequest, step: Refuse, admission: Admission | None) -> int:
    is_spent = admission is not None and admission.decision is Decision.QUOTA
    is_accounts = is_spent and admission is not None and admission.is_refused_by_account
    refund = step.refund.account or NOTHING
    given = {
        **given_of(ticket, step.attempt, step.error, step.outcome, step.refund),
        "http_status": step.error.http_status,
        "lease": 0.0,  # what is refused is not tried again
        "duration_ms": 0.0,
        "budget_ms": None,
        "reserved_in": step.refund.window_start,
        "account_reserved_in": refund.window_start,
        "is_exhausted": int(is_spent and not is_accounts),
        "account_is_exhausted": int(is_accounts),
        "ends_execution": int(step.ends_execution),
        "is_success": 0,
        "claim_state": ClaimState.FAILED.value,
        "answer": None,
    }
    kind = settlements.Kind(
        is_refusal=True,
        is_limited=is_spent or step.refund.is_held,
        is_guarded=ticket.token is not None,
        is_shared=is_accounts or refund.is_held,
    )
    refusal = settlements.texts_of(sql.dialect(), kind)
    with together(step.outcome):
        found = carry_out(refusal, given)
        if not found:
            admitting.make_gate(ticket.who, ticket.account)
            found = carry_out(refusal, given)
        if step.outcome is Outcome.DEAD_LETTER:
            dead_letters.record_dead_letter(ticket, step.error, step.attempt - 1)
    gate_id: int = found[0][0]
    return gate_id


@retry_conflicts
def stand_in(ticket: CallRequest, step: StandIn, *, is_repeat: bool = False) -> None:
    """Write down an answer that is not the provider's. A fresh one also belongs to the key that was claimed for it."""
    if is_repeat and _is_noted(ticket, source=step.source.value):
        return
    is_claimed = ticket.token is not None and step.source is Source.CACHE
    given = {
        **given_of(ticket, step.attempt, step.error, Outcome.SUCCESS, NOTHING),
        **NOT_CALLED,
        "duration_ms": round(step.duration * 1000, 3),
        "source": step.source.value,
        "claim_state": ClaimState.SUCCEEDED.value,
        "answer": kept(step.payload) if is_claimed else None,
    }
    texts = settlements.stand_in_texts(sql.dialect(), step.source, is_claimed)
    with together(Outcome.SUCCESS):
        if not carry_out(texts, given):
            admitting.make_gate(ticket.who)
            carry_out(texts, given)


@retry_conflicts
@short_transaction()
def give_up(ticket: CallRequest, step: GiveUp, *, is_repeat: bool = False) -> None:
    """Keep the dead letter of a task whose failure is written down already, and for which nothing stood in."""
    if is_repeat and _is_noted(ticket, outcome=Outcome.DEAD_LETTER.value):
        return
    given = {
        **given_of(ticket, step.attempt, step.error, Outcome.DEAD_LETTER, NOTHING),
        **NOT_CALLED,
        "duration_ms": 0.0,
    }
    sql.rows(statements.METRIC.format(gate=f"({gates.PLAIN_GATE}) AS g", **settlements.NO_RETRY), given)
    dead_letters.record_dead_letter(ticket, step.error, step.attempts_made)


def _is_noted(ticket: CallRequest, **about: str) -> bool:
    rows = ProviderExecutionMetric.objects.filter(correlation_id=ticket.context.correlation_id, call_id=ticket.call_id)
    return rows.filter(**about).exists()

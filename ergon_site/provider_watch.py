"""What the dashboard and the doctor say of providers: open breakers, overrides, spent quotas, stuck letters."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from django.urls import reverse

from engines.core.explanation import span
from engines.diagnosis import finding
from engines.diagnosis.finding import Finding
from ergon_site.concerns import Concern, capped
from providers import standing
from providers.calls import now_of_database
from providers.core.breaker import BreakerState
from providers.standing import Standing

SHOWN = 200
STUCK_AFTER = timedelta(minutes=15)


def concerns(now: datetime) -> Iterator[Concern]:
    """One for each capability that needs a person, however much is wrong with it."""
    yield from capped(_of_capabilities(standing.concerning(SHOWN, now)), reverse("admin:providers_gate_changelist"))


def findings() -> Iterator[Finding]:
    """The same for the doctor; none of it is a fault of this deployment, so all are worth a look."""
    found = standing.concerning(SHOWN, now_of_database())
    for one in found:
        text = f"{one.gate}: {', '.join(sentences(one))}"
        yield finding.warning("providers", text, "see manage.py breaker show, manage.py quota show")
    age = standing.oldest_letter_age()
    if age is not None and age > STUCK_AFTER.total_seconds():
        count = f"{standing.waiting_letters():,} dead letters wait to be published, the first for {span(age)}"
        yield finding.warning(
            "outbox of providers", count, "see whether the broker answers and manage.py maintain runs"
        )
    if not found:
        yield finding.ok("providers", "every breaker is closed, and no quota is nearly used up")


def sentences(one: Standing) -> Iterator[str]:
    """What is wrong with a capability."""
    if one.override:
        until = f" for {span((one.override_until - one.read_at).total_seconds())} more" if one.override_until else ""
        yield f"forced {one.override}{until} by {one.override_by}: {one.override_reason}"
    elif one.state is BreakerState.OPEN:
        wait = span((one.reopens_at - one.read_at).total_seconds()) if one.reopens_at else "a moment"
        yield f"the breaker is open after {one.failures:,} failures in a row, probed in {wait}"
    elif one.state is BreakerState.HALF_OPEN:
        yield "the breaker is half open: the next calls probe the provider"
    if one.quota and standing.is_near(one.quota):
        left = span((one.quota.end - one.read_at).total_seconds())
        used = "used up" if not one.quota.remaining else f"{int(one.quota.percent)} % used"
        yield f"the quota is {used}: {one.quota.used:,} of {one.quota.limit:,}, {left} to go"


def _of_capabilities(stands: Iterable[Standing]) -> Iterator[Concern]:
    for one in stands:
        first, *others = sentences(one)
        name = f"{one.who.provider_name} {one.who.capability}"
        also = "".join(f" {word[:1].upper()}{word[1:]}." for word in others)
        yield Concern(
            title=f"{name}: {first}"[:200],
            detail=f"Of the tenant {one.who.tenant_id}.{also}",
            address=reverse("admin:providers_gate_change", args=[one.gate.pk if one.gate else 0]),
        )

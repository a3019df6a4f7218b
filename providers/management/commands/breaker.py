"""`manage.py breaker show|reset|force-open|force-close`."""

from datetime import timedelta
from typing import Any

from ergon_site.access.cli.commands import actor, moment
from ergon_site.access.cli.options import add_reason, some_seconds
from providers import calls
from providers.core.exchange import Who
from providers.management.base import VerbsCommand, add_create, add_who, wanted, who_in
from providers.models import Gate
from providers.reads import health
from providers.reads.health import Standing

FORCES = {
    "force-open": "block every call, whatever the state of the breaker",
    "force-close": "allow calls, whatever the state of the breaker; quotas and pauses still hold",
}
LONGEST = 10**9
HALF_AN_HOUR = calls.FORCED_FOR.total_seconds()
FOR = f"how long the override lasts (default: {HALF_AN_HOUR:g})"


class Command(VerbsCommand):
    help = "Show and reset the breakers of providers, or force them open or closed, in all processes at once."

    def add_verbs(self) -> None:
        show = self.add_verb("show", help="show one breaker, those of a tenant or of a provider, or all")
        add_who(show, nargs="?")
        reset = self.add_verb("reset", help="close the breaker, end an override and a pause, refill the retry budget")
        add_reason(add_create(add_who(reset)))
        for verb, what in FORCES.items():
            force = add_create(add_who(self.add_verb(verb, help=what)))
            add_reason(force)
            lasting = force.add_mutually_exclusive_group()
            lasting.add_argument(
                "--for", dest="seconds", type=some_seconds, metavar="SECONDS", default=HALF_AN_HOUR, help=FOR
            )
            lasting.add_argument(
                "--until-reset", dest="seconds", action="store_const", help="the override lasts until a reset"
            )

    def show(self, *, tenant_id: str | None, provider_name: str | None, capability: str | None, **_: Any) -> None:
        rows = [_as_json(one) for one in wanted(tenant_id, provider_name, capability)]
        headings = ["tenant", "provider", "capability", "state", "failures", "success (1 h)", "p95 ms", "override"]
        self.tell(rows[0] if capability else rows, self.table(headings, map(_row, rows)))

    def reset(self, *, reason: str, **options: Any) -> None:
        self._changed(calls.reset(who_in(options), by=actor(), reason=reason), "reset: its breaker is closed")

    def force_open(self, **options: Any) -> None:
        self._force(calls.force_open, "open", **options)

    def force_close(self, **options: Any) -> None:
        self._force(calls.force_closed, "closed", **options)

    def _force(self, verb: Any, state: str, *, reason: str, seconds: float | None, **options: Any) -> None:
        lasting = None if seconds is None else timedelta(seconds=min(seconds, LONGEST))
        until = "until it is reset" if seconds is None else f"for {seconds:g} s"
        gate = verb(who_in(options), by=actor(), reason=reason, lasting=lasting)
        self._changed(gate, f"forced {state} {until}")

    def _changed(self, gate: Gate, words: str) -> None:
        told = _as_json(health.of_gates([gate])[0])
        self.tell(told, f"{gate}: {words}")


def _as_json(one: Standing) -> dict[str, Any]:
    return {
        **one.who._asdict(),
        "breaker_state": one.effective.value,
        "consecutive_failures": one.failures,
        "open_until": one.reopens_at,
        "cooldown_until": one.cooldown_until,
        "success_rate_1h": one.rates.success,
        "execution_rate_1h": one.rates.execution,
        "p95_latency_ms_1h": one.rates.p95,
        "cache_hits_1h": one.rates.cache_hits,
        "stale_answers_1h": one.rates.stale_answers,
        "fallbacks_1h": one.rates.fallbacks,
        "last_error_code": one.health.last_error_code if one.health else None,
        "override": one.override or None,
        "override_until": one.override_until,
        "override_by": one.override_by,
        "override_reason": one.override_reason,
    }


def _row(told: dict[str, Any]) -> list[Any]:
    state = told["breaker_state"]
    if told["open_until"] and not told["override"]:
        state = f"{state} until {moment(told['open_until'])}"
    rate = None if told["success_rate_1h"] is None else f"{told['success_rate_1h']:.1%}"
    p95 = None if told["p95_latency_ms_1h"] is None else f"{told['p95_latency_ms_1h']:.0f}"
    override = None
    if told["override"]:
        until = f" until {moment(told['override_until'])}" if told["override_until"] else ""
        override = f"{told['override']}{until} by {told['override_by']}: {told['override_reason']}"
    return [*(told[name] for name in Who._fields), state, told["consecutive_failures"], rate, p95, override]

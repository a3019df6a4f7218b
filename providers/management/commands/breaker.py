"""`manage.py breaker show|reset|force-open|force-close`."""

from datetime import timedelta
from typing import Any

from ergon_site.access.cli.commands import actor, moment
from ergon_site.access.cli.options import add_reason, some_seconds
from providers import calls
from providers.core.exchange import Who
from providers.management.base import VerbsCommand, add_who, wanted
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
        add_who(show, is_optional=True)
        reset = self.add_verb("reset", help="close the breaker, end an override and a pause, refill the retry budget")
        add_who(reset)
        add_reason(reset)
        for verb, what in FORCES.items():
            force = self.add_verb(verb, help=what)
            add_who(force)
            add_reason(force)
            lasting = force.add_mutually_exclusive_group()
            lasting.add_argument(
                "--for", dest="seconds", type=some_seconds, metavar="SECONDS", default=HALF_AN_HOUR, help=FOR
            )
            lasting.add_argument(
                "--until-reset",
                dest="seconds",
                action="store_const",
                const=None,
                help="the override lasts until a reset",
            )

    def show(self, *, tenant_id: str | None, provider_name: str | None, capability: str | None, **_: Any) -> None:
        rows = [_as_json(one) for one in wanted(tenant_id, provider_name, capability)]
        headings = ["tenant", "provider", "capability", "state", "failures", "success (1 h)", "p95 ms", "override"]
        self.tell(rows[0] if capability else rows, self.table(headings, map(_row, rows)))

    def reset(self, *, reason: str, **options: Any) -> None:
        self._changed(calls.reset(_who(options), by=actor(), reason=reason), "reset: its breaker is closed")

    def force_open(self, *, reason: str, seconds: float | None, **options: Any) -> None:
        gate = calls.force_open(_who(options), by=actor(), reason=reason, lasting=_lasting(seconds))
        self._changed(gate, f"forced open {_until(seconds)}")

    def force_close(self, *, reason: str, seconds: float | None, **options: Any) -> None:
        gate = calls.force_closed(_who(options), by=actor(), reason=reason, lasting=_lasting(seconds))
        self._changed(gate, f"forced closed {_until(seconds)}")

    def _changed(self, gate: Gate, words: str) -> None:
        told = _as_json(health.of_gates([gate])[0])
        self.tell(told, f"{gate.provider_name} {gate.capability} of {gate.tenant_id}: {words}")


def _who(options: dict[str, Any]) -> Who:
    return Who(*(options[name] for name in Who._fields))


def _lasting(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=min(seconds, LONGEST))


def _until(seconds: float | None) -> str:
    return "until it is reset" if seconds is None else f"for {seconds:g} s"


def _as_json(one: Standing) -> dict[str, Any]:
    return {
        **one.who._asdict(),
        "breaker_state": one.state.value,
        "consecutive_failures": one.failures,
        "open_until": one.reopens_at,
        "cooldown_until": one.cooldown_until,
        "success_rate_1h": one.rates.success,
        "execution_rate_1h": one.rates.execution,
        "p95_latency_ms_1h": one.rates.p95,
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
    return [*(told[name] for name in Who._fields), state, told["consecutive_failures"], rate, p95, _override(told)]


def _override(told: dict[str, Any]) -> str | None:
    if not told["override"]:
        return None
    until = f" until {moment(told['override_until'])}" if told["override_until"] else ""
    return f"{told['override']}{until} by {told['override_by']}: {told['override_reason']}"

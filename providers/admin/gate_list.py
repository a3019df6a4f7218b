"""The list of capabilities: its columns, and how each row stands."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from unfold.decorators import display

from ergon_site.access.lists import tag, two_lines, unbroken
from providers.admin import amounts, filters, gate_export, links
from providers.reads.health import Standing, of_gates

KINDS = {"closed": "good", "half open": "warning", "open": "bad", "forced": "warning", "pause": "warning"}


class GateColumns:
    """Each number leads to the attempts behind it."""

    list_display: ClassVar = ("name", "breaker", "rate", "latency", "quota", "last_error")
    list_filter: ClassVar = [
        filters.BreakerFilter,
        filters.QuotaFilter,
        filters.TenantFilter,
        filters.ProviderFilter,
        filters.CapabilityFilter,
    ]
    search_help_text = "A tenant, provider or capability"
    export_fields: ClassVar[Sequence[str] | Mapping[str, Any]] = gate_export.COLUMNS

    def exported(self, rows: QuerySet[Any]) -> Iterator[tuple[Any, ...]]:
        return gate_export.written(rows)

    def decorate(self, request: HttpRequest, rows: list[Any]) -> list[Any]:
        for row, stand in zip(rows, of_gates(rows), strict=True):
            row.standing = stand
        return rows

    @display(description="capability")
    def name(self, row: Any) -> str:
        return two_lines(f"{row.provider_name} {row.capability}", amounts.tenant(row.tenant_id))

    @display(description="breaker")
    def breaker(self, row: Any) -> str:
        return format_html(
            '<div class="ergon-cell">{}<div class="ergon-why">{}</div></div>', tags(row.standing), why(row.standing)
        )

    @display(description="success (1 h)")
    def rate(self, row: Any) -> str:
        one: Standing = row.standing
        told = amounts.share(one.rates.success)
        return told if one.rates.success is None else unbroken(links.anchor(links.attempts(one.who), told))

    @display(description="p95 (1 h)")
    def latency(self, row: Any) -> str:
        return unbroken(amounts.milliseconds(row.standing.rates.p95))

    @display(description="quota")
    def quota(self, row: Any) -> str:
        return amounts.quota(row.standing.quota)

    @display(description="last error")
    def last_error(self, row: Any) -> str:
        health = row.standing.health
        if health is None or health.last_error_code is None:
            return amounts.UNKNOWN
        return two_lines(health.last_error_code, amounts.at(health.last_error_at))


def tags(one: Standing) -> str:
    """The effective state, and whether somebody forced it or the provider asked for a pause."""
    extra = ["forced"] if one.override else []
    extra += ["pause"] if one.cooldown_until else []
    words = [tag(word, KINDS) for word in (one.state.value.replace("_", " "), *extra)]
    return format_html("{} {} {}", *words, *[""] * (3 - len(words)))


def why(one: Standing) -> str:
    """What is behind the state, in few words."""
    if one.override:
        until = f"{amounts.away(one.override_until, one.read_at)} more" if one.override_until else "until reset"
        return f"by {one.override_by}, {until}: {one.override_reason}"
    told = []
    if one.reopens_at:
        told.append(f"probed in {amounts.away(one.reopens_at, one.read_at)}")
    elif one.failures:
        told.append(f"{one.failures:,} failure{'s' if one.failures > 1 else ''} in a row")
    if one.cooldown_until:
        told.append(f"paused for {amounts.away(one.cooldown_until, one.read_at)}")
    return ", ".join(told)

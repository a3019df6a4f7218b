"""The filters above the lists of providers."""

from typing import Any

from django.http import HttpRequest

from ergon_site.access.lists import Choice, Typed
from providers.reads.lists import OFFERED


class Offered(Choice):
    """A filter whose words the lists know."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(word, word.replace("_", " ")) for word in OFFERED[str(self.parameter_name)]]


class TenantFilter(Typed):
    title = parameter_name = "tenant"


class ProviderFilter(Typed):
    title = parameter_name = "provider"


class CapabilityFilter(Typed):
    title = parameter_name = "capability"


class CorrelationFilter(Typed):
    title = "correlation id"
    parameter_name = "correlation"


class TaskFilter(Typed):
    title = "task execution"
    parameter_name = "task"
    help_text = "Execution number"


class TaskNameFilter(Typed):
    title = parameter_name = "task"
    help_text = "Full name"


class WaitsForFilter(Typed):
    title = "waits for"
    parameter_name = "waits_for"
    help_text = "provider/capability, with a tenant"


class BreakerFilter(Offered):
    title = parameter_name = "breaker"


class QuotaFilter(Offered):
    title = parameter_name = "quota"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("near", "80 % used or more"), ("spent", "used up"), ("none", "no quota")]


class OutcomeFilter(Offered):
    title = parameter_name = "outcome"


class ReasonFilter(Offered):
    title = parameter_name = "reason"


class StateFilter(Offered):
    title = parameter_name = "state"


class PublishedFilter(Offered):
    title = parameter_name = "published"

"""Policies of providers: what each says instead of the provider's class, in versions."""

from typing import Any, ClassVar

from django.db.models import Value
from django.db.models.functions import Concat
from django.http import HttpRequest

from engines.core.errors import PolicyError
from engines.core.retry_preview import RetryPreview, Wait
from ergon_site.access.console.pages import registered
from ergon_site.access.core.durations import exact_span
from ergon_site.access.policies.errors import PolicyRefusal
from ergon_site.access.policies.page import PolicyPage
from ergon_site.access.policies.sections import Drawing, Layout
from ergon_site.access.policies.version_page import VersionPage, activation
from providers import active_policy, policies, registry
from providers.admin.forms import NewPolicyForm
from providers.core.retry import RetryPolicy
from providers.models import ProviderPolicyRow, ProviderPolicyVersion

EFFECT = "It applies from the next call on, in other processes within a second."
DRAWN = 8
NEW = {
    "submit_text": "Create policy",
    "intro": "It starts with the settings of the provider's class, or with the defaults if the class is unknown. "
    "You set its fields on the next page.",
}


@registered(ProviderPolicyRow)
class ProviderPoliciesPage(PolicyPage):
    verbs = policies
    new_form = NewPolicyForm
    new_terms = NEW
    effect = EFFECT
    refused_by = (PolicyRefusal, PolicyError, ValueError)
    detail_template = "console/provider_policy.html"
    empty_text = (
        "Without a policy, the settings of the provider's class apply. A policy created here overrides them at once."
    )
    list_display = ("provider_name", "capability", "version", "changed_by", "changed_at")
    search_fields = ("provider_name__startswith", "capability__startswith")
    found_by = Concat("provider_name", Value("/"), "capability")
    export_fields = ("provider_name", "capability", "active__number", "last_by", "last_at")

    def first_body(self, new: dict[str, Any]) -> dict[str, Any]:
        kind = registry.classes().get((new["provider_name"], new["capability"]))
        return active_policy.defaults_of(kind).to_dict() if kind else {}

    def layout(self, policy: ProviderPolicyRow) -> Layout:
        first = {"Time": {"timeout": "Timeout", "retry_after_ceiling": "Retry after ceiling"}}
        unfolded = frozenset({"retry", "breaker"})
        return Layout(rest="Call", drawings={"retry": DRAWING}, first=first, unfolded=unfolded)

    def details(self, request: HttpRequest, row: ProviderPolicyRow) -> dict[str, Any]:
        return {"is_known": row.key in registry.classes()}


@registered(ProviderPolicyVersion)
class ProviderPolicyVersionsPage(VersionPage):
    verbs = policies
    search_fields = ("policy__provider_name__startswith", "policy__capability__startswith", "author__startswith")
    search_help_text = "Start of a provider, capability or author"
    export_fields: ClassVar = (
        *("policy__provider_name", "policy__capability", "number", "author", "created_at", "reason"),
        *("changes", "body"),
    )
    activate = activation(ProviderPolicyVersion, EFFECT)


def _outlook(values: dict[str, Any]) -> RetryPreview:
    """The attempts of a call that keeps failing, with the waits as they are without chance."""
    retry = RetryPolicy(**values)
    delays = [retry.delay(number, random=lambda: 0.5) for number in range(1, min(retry.max_attempts, DRAWN))]
    longest, sentence = max(delays, default=0.0), "One attempt, no retries."
    if retry.max_attempts > 1:
        at_most, ratio = exact_span(retry.max_delay_seconds * (1 + retry.jitter_ratio)), f"{retry.jitter_ratio:.0%}"
        waits = f"each wait varies randomly by up to {ratio}, never above {at_most}"
        sentence = f"{retry.max_attempts:,} attempts at most; {waits}. Only retryable failures are retried."
    return RetryPreview(
        waits=tuple(Wait(seconds=delay, share=delay / longest if longest else 0.0) for delay in delays),
        not_drawn=max(0, retry.max_attempts - DRAWN),
        sentence=sentence,
    )


DRAWING = Drawing(path="retry", draw=_outlook, template="console/outlook.html")

"""Rows of providers: quotas, health, the gate before each capability, what was called, and what must not be repeated.

Only the verbs write them. Times on the gate and on claims are seconds since 1970: one text of SQL does their
arithmetic on every database.
"""

from providers.models.calls import (
    IdempotencyClaim,
    OutboxLetter,
    ProviderExecutionMetric,
    ProviderMinute,
    Retention,
    TaskExecution,
)
from providers.models.gates import Gate, ProviderHealthState, QuotaState
from providers.models.policies import ProviderPolicyRow, ProviderPolicyVersion

__all__ = [
    "Gate",
    "IdempotencyClaim",
    "OutboxLetter",
    "ProviderExecutionMetric",
    "ProviderHealthState",
    "ProviderMinute",
    "ProviderPolicyRow",
    "ProviderPolicyVersion",
    "QuotaState",
    "Retention",
    "TaskExecution",
]

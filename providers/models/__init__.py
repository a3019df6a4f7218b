"""Rows of providers: quotas, health, the gate before each capability, what was called, and what must not be repeated.

Only the verbs write them. Times on the gate and on claims are seconds since 1970: one text of SQL does their
arithmetic on every database.
"""

from providers.models.calls import (
    CachedAnswer as CachedAnswer,
    IdempotencyClaim as IdempotencyClaim,
    OutboxLetter as OutboxLetter,
    ProviderExecutionMetric as ProviderExecutionMetric,
    ProviderMinute as ProviderMinute,
    Retention as Retention,
    TaskExecution as TaskExecution,
)
from providers.models.events import ProviderEvent as ProviderEvent
from providers.models.gates import Gate as Gate, ProviderHealthState as ProviderHealthState, QuotaState as QuotaState
from providers.models.policies import (
    ProviderPolicyRow as ProviderPolicyRow,
    ProviderPolicyVersion as ProviderPolicyVersion,
)

"""Rows of providers: quotas, health, the gate before each capability, what was called, and what must not be repeated.

Only the verbs write them. Times on the gate and on claims are seconds since 1970: one text of SQL does their
arithmetic on every database.
"""

from providers.models.claims import IdempotencyClaim
from providers.models.gates import Gate
from providers.models.health import ProviderHealthState
from providers.models.letters import OutboxLetter
from providers.models.metrics import ProviderExecutionMetric, ProviderMinute, Retention
from providers.models.policies import ProviderPolicyRow, ProviderPolicyVersion
from providers.models.quotas import QuotaState
from providers.models.tasks import TaskExecution

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

"""An execution, as the verbs see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from providers.core.exchange import ProviderExecutionContext, Who
from providers.core.policy import ProviderPolicy

# A lease outlives the deadline of whoever holds it: nobody else may begin while it may still be calling.
SLACK = 5.0


@dataclass(slots=True, kw_only=True)
class CallRequest:
    """A request with its caller and policy, and the token of its claim while it holds one."""

    who: Who
    operation: str
    key: str
    fingerprint: str
    policy: ProviderPolicy
    context: ProviderExecutionContext
    campaign_id: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    policy_version: int | None = None
    token: str | None = None

    @property
    def named(self) -> dict[str, Any]:
        """The parameters that name its capability."""
        tenant_id, provider_name, capability = self.who
        return {"tenant": tenant_id, "provider": provider_name, "capability": capability}

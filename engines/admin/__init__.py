"""The console's pages of the engines."""

from engines.admin import pipelines, policies, policy_versions, schedules, workers

__all__ = ["pipelines", "policies", "policy_versions", "schedules", "workers"]

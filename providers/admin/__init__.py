"""The console's pages of providers."""

from providers.admin import attempts, gates, outbox, policies, tasks

__all__ = ["attempts", "gates", "outbox", "policies", "tasks"]

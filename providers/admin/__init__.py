"""The console's pages of providers."""

from providers.admin import attempts, events, gates, outbox, policies, tasks

__all__ = ["attempts", "events", "gates", "outbox", "policies", "tasks"]

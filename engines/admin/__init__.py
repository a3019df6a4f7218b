"""The console's pages of the engines."""

from engines.admin import bulk, dead_letters, letter_groups, pipelines, policies, schedules, transactions, workers

__all__ = ["bulk", "dead_letters", "letter_groups", "pipelines", "policies", "schedules", "transactions", "workers"]

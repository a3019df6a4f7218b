"""The console's pages of the engines."""

from engines.admin import bulk, dead_letters, letter_groups, transactions

__all__ = ["bulk", "dead_letters", "letter_groups", "transactions"]

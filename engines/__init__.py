"""Transactions: policies, consumer and producer engines, executors."""

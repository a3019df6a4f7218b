"""Calls to outside providers: quota, breaker, retry, idempotency, health."""

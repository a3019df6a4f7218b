"""The maintenance jobs of providers."""

from providers import calls


def rate() -> int:
    """Compute the rates anew wherever they have aged, so that an hour without calls shows."""
    return calls.rollup()


def prune() -> int:
    """Let go of calls, and of what belongs to them, once they are old enough."""
    return calls.prune().total

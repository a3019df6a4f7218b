"""The console's pages of the boundary."""

from facts.admin import artifacts, boundaries, consumers, facts, zones

__all__ = ["artifacts", "boundaries", "consumers", "facts", "zones"]

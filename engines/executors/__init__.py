"""Handlers in other processes: the protocol, the parent side, the child side."""

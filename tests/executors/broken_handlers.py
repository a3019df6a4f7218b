"""A module that cannot be imported."""

registry = 1 / 0

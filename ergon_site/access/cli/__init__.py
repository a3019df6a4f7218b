"""Shared by the commands of all apps: base classes, options, tables, a live line."""

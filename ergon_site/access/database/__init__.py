"""Shared by all apps: the database itself, whatever its tables."""

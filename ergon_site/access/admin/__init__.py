"""The console's pages for people, roles, API clients and the audit log."""

from ergon_site.access.admin import audit_log, clients, users

__all__ = ["audit_log", "clients", "users"]

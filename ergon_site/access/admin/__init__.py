"""The console's pages for people, roles, API clients, saved views and the audit log."""

from ergon_site.access.admin import audit_log, clients, saved_views, users

__all__ = ["audit_log", "clients", "saved_views", "users"]

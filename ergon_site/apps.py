from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    """Django's admin with Ergon's own site object in place of the default one."""

    default_site = "ergon_site.console.Console"

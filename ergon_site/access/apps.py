from django.core.checks import register
from django.core.signals import request_started
from django.db.backends.signals import connection_created

from ergon_site.access import checks
from ergon_site.access.app_config import ErgonAppConfig
from ergon_site.access.database import connections


class AccessConfig(ErgonAppConfig):
    default = True
    name = "ergon_site.access"
    label = "access"
    verbose_name = "Access"
    needs = ("django.contrib.auth", "django.contrib.contenttypes")
    ergon_chores = {"failed_logins_forgotten": (600.0, "ergon_site.access.logins.forget")}

    def ready(self) -> None:
        register(checks.check_project, checks.TAG)
        register(checks.check_console)
        register(checks.check_reference)
        register(checks.check_certificate_header, deploy=True)
        # No row's signal: the only place that every connection of every thread passes, and once in its life.
        connection_created.connect(connections.check_new_connection)
        request_started.connect(connections.close_if_replaced)

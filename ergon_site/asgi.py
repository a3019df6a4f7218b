"""The ASGI application, for servers that want one."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")

from django.core.asgi import get_asgi_application
from django.db import connections

from ergon_site import telemetry

telemetry.start(web=True)
application = get_asgi_application()
for settings in connections.settings.values():
    # Each request has a thread of its own: nobody would use its connection again, or close it.
    settings["CONN_MAX_AGE"] = 0
telemetry.begin_to_serve()

"""The ASGI application, for servers that want one."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")

from django.core.asgi import get_asgi_application

from ergon_site import telemetry

telemetry.start(web=True)
application = get_asgi_application()
telemetry.begin_to_serve()

"""The WSGI application: `granian --interface wsgi ergon_site.wsgi:application`."""

import gc
import os

gc.disable()  # until everything is loaded, of which nothing is garbage
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")

from django.core.wsgi import get_wsgi_application

from ergon_site import telemetry

telemetry.start(web=True)
application = get_wsgi_application()
telemetry.begin_to_serve()
# What is loaded by now stays: whoever collects garbage need not look at it.
gc.collect()
gc.freeze()
gc.enable()

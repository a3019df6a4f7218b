"""Every address: of a whole site, or below a prefix of another project's."""

from importlib import import_module
from typing import Any

from django.apps import apps
from django.urls import include, path
from django.views.generic import RedirectView

from ergon_site.access.app_config import require

require("ergon_site.urls", "django.contrib.admin", "ergon_site.access", "engines")

from ergon_site.console import console  # noqa: E402 (which says less clearly what is missing)
from ergon_site.dashboard import api as attention  # noqa: E402

# What is called most first: an address is compared with one after the other.
APPS = ("facts", "engines", "providers", "ergon_site.access")
api = [one for app in APPS if apps.is_installed(app) for one in import_module(f"{app}.api.urls").urlpatterns]
api += attention.urlpatterns

urlpatterns: list[Any] = [
    path("api/v1/", include((api, "ergon-api"))),
    path("", RedirectView.as_view(pattern_name="ergon:index")),
    path("admin/", console().urls),
]
if apps.is_installed("drf_spectacular"):
    from ergon_site.access.api.schema import SchemaView
    from ergon_site.api_reference import reference

    urlpatterns.append(path("api/schema/", SchemaView.as_view(), name="ergon-api-schema"))
    if apps.is_installed("drf_spectacular_sidecar"):
        urlpatterns.append(path("api/docs/", reference, name="ergon-api-reference"))

handler400 = "ergon_site.access.api.problems.bad_request"
handler403 = "ergon_site.access.api.problems.forbidden"
handler404 = "ergon_site.access.api.problems.not_found"
handler500 = "ergon_site.access.api.problems.server_error"

"""Every address."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from django_celery_results.models import GroupResult, TaskResult
from drf_spectacular.views import SpectacularSwaggerView

from engines.api.urls import urlpatterns as engines
from ergon_site.access.api.schema import SchemaView
from ergon_site.access.api.urls import urlpatterns as access
from facts.api.urls import urlpatterns as facts
from providers.api.urls import urlpatterns as providers

admin.autodiscover()
# Celery's results are kept for programs; their stock pages would let people write and delete unaudited.
admin.site.unregister([GroupResult, TaskResult])

urlpatterns = [
    # In one list, and what is called most first: an address is compared with one after the other.
    path("api/v1/", include([*facts, *engines, *providers, *access])),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
]

handler400 = "ergon_site.access.api.problems.bad_request"
handler403 = "ergon_site.access.api.problems.forbidden"
handler404 = "ergon_site.access.api.problems.not_found"
handler500 = "ergon_site.access.api.problems.server_error"

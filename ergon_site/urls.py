"""Every address."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView
from django_celery_results.models import GroupResult, TaskResult
from drf_spectacular.views import SpectacularSwaggerView

from ergon_site.access.api.schema import SchemaView

admin.autodiscover()
# Celery's results are kept for programs; their stock pages would let people write and delete unaudited.
admin.site.unregister([GroupResult, TaskResult])

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("ergon_site.access.api.urls")),
    path("api/v1/", include("engines.api.urls")),
    path("api/v1/", include("facts.api.urls")),
    path("api/v1/", include("providers.api.urls")),
    path("api/schema/", SchemaView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
]

handler400 = "ergon_site.access.api.problems.bad_request"
handler403 = "ergon_site.access.api.problems.forbidden"
handler404 = "ergon_site.access.api.problems.not_found"
handler500 = "ergon_site.access.api.problems.server_error"

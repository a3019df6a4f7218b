from django.urls import path

from ergon_site.access.api.views import AuditEntriesView, ClientView

urlpatterns = [
    path("client", ClientView.as_view(), name="client"),
    path("audit-entries", AuditEntriesView.as_view(), name="audit-entries"),
]

"""The boundary's addresses. Message ids and keys may hold slashes."""

from django.urls import path

from facts.api.consumers import ConfirmView, ConsumerFactsView, ConsumerView
from facts.api.facts import BatchView, FactsView, FactView

urlpatterns = [
    path("facts", FactsView.as_view(), name="facts"),
    path("facts/batch", BatchView.as_view(), name="facts-batch"),
    path("facts/<path:message_id>", FactView.as_view(), name="fact"),
    path("consumers/<str:name>", ConsumerView.as_view(), name="consumer"),
    path("consumers/<str:name>/facts", ConsumerFactsView.as_view(), name="consumer-facts"),
    path("consumers/<str:name>/confirm", ConfirmView.as_view(), name="consumer-confirm"),
]

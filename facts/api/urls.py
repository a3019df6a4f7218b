"""The boundary's addresses. Message ids and keys may hold slashes."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from facts.api.boundaries import BoundariesView, BoundaryView, CloseGateView, LimitView, OpenGateView
from facts.api.consumers import ConfirmView, ConsumerFactsView, ConsumerView
from facts.api.facts import BatchView, FactsView, FactView
from facts.api.objects import ObjectView


class Bucket(StringConverter):
    """Any text up to a slash, none included: the rules say what is wrong with it."""

    regex = "[^/]*"


class Key(StringConverter):
    """Whatever follows, line breaks included."""

    regex = r"[\s\S]*"


register_converter(Bucket, "bucket")
register_converter(Key, "key")

urlpatterns = [
    path("facts", FactsView.as_view(), name="facts"),
    path("facts/batch", BatchView.as_view(), name="facts-batch"),
    path("facts/<path:message_id>", FactView.as_view(), name="fact"),
    path("objects/<bucket:bucket>/<key:key>", ObjectView.as_view(), name="object"),
    path("consumers/<str:name>", ConsumerView.as_view(), name="consumer"),
    path("consumers/<str:name>/facts", ConsumerFactsView.as_view(), name="consumer-facts"),
    path("consumers/<str:name>/confirm", ConfirmView.as_view(), name="consumer-confirm"),
    path("boundaries", BoundariesView.as_view(), name="boundaries"),
    path("boundaries/<int:boundary_id>", BoundaryView.as_view(), name="boundary"),
    path("boundaries/<int:boundary_id>/open", OpenGateView.as_view(), name="boundary-open"),
    path("boundaries/<int:boundary_id>/close", CloseGateView.as_view(), name="boundary-close"),
    path("boundaries/<int:boundary_id>/limit", LimitView.as_view(), name="boundary-limit"),
]

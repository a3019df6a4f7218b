"""The verbs and the console pages of the policies of calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django import forms
from django.urls import path

from ergon_site.access.console.fields import WhyField
from ergon_site.access.policies.page import PolicyPage
from ergon_site.access.policies.verbs import Policies
from ergon_site.access.policies.version_page import VersionPage, activation
from ergon_site.console import console
from ergon_site.urls import urlpatterns as site_patterns
from tests.calls.models import CallPolicy, CallPolicyVersion

POLICIES: Policies[CallPolicy, CallPolicyVersion] = Policies(model=CallPolicy)


class NewCallPolicyForm(forms.Form):
    provider = forms.CharField(max_length=100)
    capability = forms.CharField(max_length=100)
    reason = WhyField()


class CallPoliciesPage(PolicyPage):
    verbs = POLICIES
    new_form = NewCallPolicyForm
    list_display = ("provider", "capability", "version", "changed_by", "changed_at")
    search_fields = ("provider__startswith", "capability__startswith")


class CallPolicyVersionsPage(VersionPage):
    verbs = POLICIES
    activate = activation(CallPolicyVersion, "The next call obeys it.")


@contextmanager
def registered() -> Iterator[tuple[Any, ...]]:
    """The addresses of the site with these pages, which are gone afterwards."""
    console().register(CallPolicy, CallPoliciesPage)
    console().register(CallPolicyVersion, CallPolicyVersionsPage)
    yield (path("admin/", console().urls), *site_patterns)
    console().unregister([CallPolicy, CallPolicyVersion])

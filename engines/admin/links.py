"""Links between the pages of the engines."""

from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from engines.models import DeadLetterGroup, Pipeline, Policy, Worker


def transactions(pipeline: str, state: str) -> str:
    """The address of the transactions of a pipeline in a state."""
    folder = reverse("admin:app_list", args=["engines"])
    return f"{folder}transactionrecord/?{urlencode({'pipeline': pipeline, 'state': state})}"


def transaction(uid: str) -> str:
    """The address of the list that finds a transaction."""
    folder = reverse("admin:app_list", args=["engines"])
    return f"{folder}transactionrecord/?{urlencode({'q': uid})}"


def letters(group: DeadLetterGroup) -> str:
    """The address of the single dead letters of a kind of failure."""
    return f"{reverse('admin:engines_deadletter_changelist')}?{urlencode({'group': group.pk})}"


def held(worker: Worker) -> str:
    """The address of the transactions that a worker holds."""
    return f"{reverse('admin:engines_transactionrecord_changelist')}?{urlencode({'worker': worker.pk})}"


def governed(policy: Policy) -> str:
    """The address of the pipelines of a policy."""
    return f"{reverse('admin:engines_pipeline_changelist')}?{urlencode({'policy__id__exact': policy.pk})}"


def pipeline(row: Pipeline) -> str:
    return reverse("admin:engines_pipeline_change", args=[row.pk])


def policy(row: Policy) -> str:
    return reverse("admin:engines_policy_change", args=[row.pk])


def anchor(address: str, text: Any) -> str:
    return format_html('<a class="ergon-link" href="{}">{}</a>', address, text)

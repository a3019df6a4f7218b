"""Links between the pages of the engines."""

from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from engines.models import Pipeline, Policy, TransactionRecord


def rows(model: str, **filters: Any) -> str:
    """The address of a list, filtered."""
    return f"{reverse(f'ergon:engines_{model}_changelist')}?{urlencode(filters)}"


def transactions(pipeline: str, state: str) -> str:
    """The address of the transactions of a pipeline in a state."""
    return rows("transactionrecord", pipeline=pipeline, state=state)


def pipeline(row: Pipeline) -> str:
    return reverse("ergon:engines_pipeline_change", args=[row.pk])


def policy(row: Policy) -> str:
    return reverse("ergon:engines_policy_change", args=[row.pk])


def transaction(row: TransactionRecord) -> str:
    return reverse("ergon:engines_transactionrecord_change", args=[row.pk])

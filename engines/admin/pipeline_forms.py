"""Forms of the pipeline pages."""

from typing import Any

from django import forms
from django.conf import settings
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from engines.admin.fields import NameField, Suggestions
from engines.models import DIRECTIONS, Pipeline, Policy
from engines.pipelines import Plan
from engines.tasks import registry
from ergon_site.access.fields import JsonField, WhyField

LONGEST_KEPT = 36_500
PRIORITIES = {"min_value": -(2**31), "max_value": 2**31 - 1}


def _policies() -> list[tuple[str, str]]:
    return [(one.name, f"{one.name} ({one.kind})") for one in Policy.objects.all()]


def _days(label: str, initial: int) -> forms.IntegerField:
    widget = UnfoldAdminIntegerFieldWidget
    help_text = "Days until they are pruned."
    return forms.IntegerField(
        label=label, min_value=1, max_value=LONGEST_KEPT, initial=initial, widget=widget, help_text=help_text
    )


class PipelineForm(forms.Form):
    """The fields of a pipeline."""

    task = forms.CharField(
        required=False,
        max_length=200,
        widget=Suggestions(registry.tasks.names),
        help_text="The registered name of the task. Names unknown to this process are accepted too.",
    )
    executor = forms.CharField(
        required=False,
        max_length=100,
        widget=Suggestions(lambda: sorted(settings.ERGON_EXECUTORS)),
        help_text="The executor that runs the handlers. Choose either a task or an executor.",
    )
    direction = forms.ChoiceField(
        choices=DIRECTIONS,
        widget=UnfoldAdminSelectWidget,
        help_text="Inbound transactions are consumed, outbound ones are produced.",
    )
    connector = forms.CharField(
        max_length=100,
        initial="database",
        widget=UnfoldAdminTextInputWidget,
        help_text="The source of its transactions.",
    )
    policy = forms.ChoiceField(
        choices=_policies,
        widget=UnfoldAdminSelectWidget,
        help_text="A consumer policy for an inbound pipeline, a producer policy for an outbound one.",
    )
    priority = forms.IntegerField(
        initial=0,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="For transactions submitted without a priority. Higher priorities run first.",
        **PRIORITIES,  # type: ignore[arg-type]
    )
    is_enabled = forms.BooleanField(
        label="Enabled",
        required=False,
        initial=True,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Served by consumers that are started without pipeline names.",
    )
    keep_succeeded_days = _days("Retention of succeeded", 7)
    keep_failed_days = _days("Retention of failed", 90)
    redacted = forms.CharField(
        label="Redacted fields",
        required=False,
        max_length=5000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Payload fields that are hidden until revealed, one path per line: customer.email, items[].price.",
    )
    reason = WhyField()

    def clean_redacted(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["redacted"].splitlines() if line.strip()]

    def plan(self) -> Plan:
        return Plan(**{name: self.cleaned_data[name] for name in Plan.__dataclass_fields__})


class NewPipelineForm(PipelineForm):
    name = NameField("pipeline", Pipeline)
    field_order = ("name",)


class TrialForm(forms.Form):
    """A transaction to try a pipeline with."""

    payload = JsonField(max_length=2_000_000, initial={}, help_text="Any JSON value.")


def values_of(pipeline: Pipeline) -> dict[str, Any]:
    """A pipeline as the form shows it."""
    values = {name: getattr(pipeline, name) for name in Plan.__dataclass_fields__}
    return {**values, "policy": pipeline.policy.name, "redacted": "\n".join(pipeline.redacted)}

"""The forms of the engines' pages."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from django import forms
from django.db.models import Model
from django.utils.html import format_html, format_html_join
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from engines.conf import settings
from engines.core import naming, redaction
from engines.dead_letters.bulk import AT_ONCE, MOST, MOST_FIRST, Terms
from engines.models import DIRECTIONS, DeadLetterGroup, Pipeline, Policy
from engines.pipelines import Plan
from engines.tasks import registry
from engines.transactions import payloads
from ergon_site.access.console.amendments import AmendingForm
from ergon_site.access.console.fields import JsonField, WhyField
from ergon_site.access.console.pages import ReasonForm
from ergon_site.access.core import json_text
from ergon_site.access.core.texts import sentence

LONGEST_KEPT = 36_500
# In characters: a longer payload is not edited by hand.
LONGEST_BEGINNING = 20_000
PRIORITIES = {"min_value": -(2**31), "max_value": 2**31 - 1}
LEFT = (
    f"A hidden field ({redaction.HIDDEN}) stands where no field was hidden, or in a list whose length changed. "
    "Enter the real value, or keep the length of the list."
)


class NameField(forms.CharField):
    """The name of something new."""

    def __init__(self, noun: str, model: type[Model]) -> None:
        self.noun, self.model = noun, model
        widget = UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
        super().__init__(max_length=100, widget=widget, help_text="Letters, digits, '.', '_' and '-'.")

    def clean(self, value: Any) -> str:
        name: str = super().clean(value)
        if refusal := naming.refusal(self.noun, name):
            raise forms.ValidationError(sentence(refusal))
        if self.model._default_manager.filter(name=name).exists():  # noqa: SLF001 (Django's own way)
            msg = f"There is a {self.noun} named {name} already."
            raise forms.ValidationError(msg)
        return name


class Suggestions(UnfoldAdminTextInputWidget):
    """A text, with the names that are known offered."""

    def __init__(self, names: Callable[[], list[str]]) -> None:
        self.names = names
        super().__init__(attrs={"autocomplete": "off"})

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> str:
        key = f"{name}_names"
        box = super().render(name, value, {**(attrs or {}), "list": key}, renderer)
        options = format_html_join("", '<option value="{}"></option>', ((known,) for known in self.names()))
        return format_html('{}<datalist id="{}">{}</datalist>', box, key, options)


def _days(label: str, initial: int) -> forms.IntegerField:
    widget = UnfoldAdminIntegerFieldWidget
    help_text = "Days until they are pruned."
    return forms.IntegerField(
        label=label, min_value=1, max_value=LONGEST_KEPT, initial=initial, widget=widget, help_text=help_text
    )


def _paths(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


class PipelineForm(forms.Form):
    task = forms.CharField(
        required=False,
        max_length=200,
        widget=Suggestions(registry.tasks.names),
        help_text="The registered name of the task. Names unknown to this process are accepted too.",
    )
    executor = forms.CharField(
        required=False,
        max_length=100,
        widget=Suggestions(lambda: sorted(settings().executors)),
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
        choices=lambda: [(one.name, f"{one.name} ({one.kind})") for one in Policy.objects.all()],
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
    summary = forms.CharField(
        label="Summary fields",
        required=False,
        max_length=2000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text="Payload fields that lists of transactions show, one path per line, at most four. "
        "Without any, the first ones are shown.",
    )
    reason = WhyField()

    def clean_redacted(self) -> list[str]:
        return _paths(self.cleaned_data["redacted"])

    def clean_summary(self) -> list[str]:
        return _paths(self.cleaned_data["summary"])

    def plan(self) -> Plan:
        return Plan(**{name: self.cleaned_data[name] for name in Plan.__dataclass_fields__})


class NewPipelineForm(PipelineForm):
    name = NameField("pipeline", Pipeline)
    field_order = ("name",)


class EditPipelineForm(AmendingForm, PipelineForm):
    def __init__(self, data: Any, pipeline: Pipeline) -> None:
        values = {name: getattr(pipeline, name) for name in Plan.__dataclass_fields__}
        present = {**values, "policy": pipeline.policy.name}
        lines = {name: "\n".join(values[name]) for name in ("redacted", "summary")}
        super().__init__(data, present=present, initial={**present, **lines})

    def plan(self) -> Plan:
        return Plan(**self.changes())


class TrialForm(forms.Form):
    """A transaction to try a pipeline with; it begins with the payload of the newest one that has ended."""

    payload = JsonField(max_length=2_000_000, initial={}, help_text="Any JSON value.")

    def __init__(self, data: Any, last: Any, redacted: list[str]) -> None:
        shown = redaction.redact(last, redacted, stand_in="")
        begins = last is not None and len(json.dumps(shown)) <= LONGEST_BEGINNING
        super().__init__(data, initial={"payload": shown} if begins else {})
        emptied = redaction.hidden_in(last, redacted) if begins else []
        if emptied:
            self.fields["payload"].help_text = f"Hidden fields are left empty, fill them in: {', '.join(emptied)}."
        elif begins:
            self.fields["payload"].help_text = "The payload of an earlier transaction."


class GroupForm(ReasonForm):
    """Why, and how many it concerns: counted when the dialog opens."""

    form_before_template = "console/dry_run.html"

    def get_before_template_context(self, request: Any, object_id: Any = None) -> dict[str, Any]:
        group = DeadLetterGroup.objects.get(pk=object_id)
        return {"group": group, "count": group.letters.filter(state="open").count(), "most": MOST}


class ReplayGroupForm(GroupForm):
    """The options of replaying many: a few first, then the rest at a rate."""

    canary = forms.IntegerField(
        initial=1,
        min_value=0,
        max_value=MOST_FIRST,
        widget=UnfoldAdminIntegerFieldWidget,
        help_text="Replay this many first; continue only if they succeed. 0: no canary.",
    )
    rate = forms.FloatField(
        initial=10,
        min_value=0.1,
        max_value=AT_ONCE,
        label="Per second",
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=f"Up to {AT_ONCE}. It stops automatically when a replay fails again.",
    )
    field_order = ("canary", "rate", "reason")

    def terms(self) -> Terms:
        return Terms(canary=self.cleaned_data["canary"], rate=self.cleaned_data["rate"])


class PayloadForm(forms.Form):
    """A payload to be edited: shown with hidden fields hidden, sent with them put back where they were left alone."""

    payload = forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 20, "spellcheck": "false", "data-json": True}),
        strip=False,
    )
    reason = ReasonForm.declared_fields["reason"]
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, original: Any, redacted: list[str], data: Any = None) -> None:
        shown = json.dumps(redaction.redact(original, redacted), indent=2, ensure_ascii=False)
        super().__init__(data, initial={"payload": shown})
        self.original, self.redacted = original, redacted

    def clean_payload(self) -> Any:
        try:
            edited = json_text.parse(self.cleaned_data["payload"].encode())
            whole = redaction.restore(edited, self.original, self.redacted)
            payloads.encode(whole, limit=settings().payload_limit)
        except (json_text.MalformedJSONError, payloads.PayloadError) as error:
            told = str(error).replace("The body", "The payload").removesuffix(".")
            raise forms.ValidationError(sentence(told)) from None
        if redaction.is_left(whole, self.redacted):
            raise forms.ValidationError(LEFT)
        return whole

    def digest(self) -> str:
        """Of what would be sent: sent is only what was seen as a difference before."""
        text = json.dumps(self.cleaned_data["payload"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

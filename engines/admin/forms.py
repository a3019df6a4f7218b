"""The forms of dialogs and of the payload editor."""

import hashlib
import json
from typing import Any

from django import forms
from django.http import Http404
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminIntegerFieldWidget, UnfoldAdminTextareaWidget

from engines.bulk import AT_ONCE, MOST, MOST_FIRST, Terms
from engines.conf import settings
from engines.core import redaction
from engines.models import DeadLetterGroup
from engines.transactions import payloads
from ergon_site.access.core import json_text
from ergon_site.access.pages import ReasonForm

LEFT = (
    f"A hidden field ({redaction.HIDDEN}) stands where no field was hidden, or in a list whose length changed. "
    "Enter the real value, or keep the length of the list."
)


class GroupForm(ReasonForm):
    """Why, and how many it concerns: counted when the dialog opens."""

    form_before_template = "console/dry_run.html"

    def get_before_template_context(self, request: Any, object_id: Any = None) -> dict[str, Any]:
        try:
            group = DeadLetterGroup.objects.get(pk=object_id)
        except (DeadLetterGroup.DoesNotExist, ValueError):
            raise Http404 from None
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
            raise forms.ValidationError(_sentence(error)) from None
        if redaction.is_left(whole, self.redacted):
            raise forms.ValidationError(LEFT)
        return whole

    def digest(self) -> str:
        """Of what would be sent: sent is only what was seen as a difference before."""
        text = json.dumps(self.cleaned_data["payload"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _sentence(error: Exception) -> str:
    told = str(error).replace("The body", "The payload").removesuffix(".")
    return f"{told[:1].upper()}{told[1:]}."

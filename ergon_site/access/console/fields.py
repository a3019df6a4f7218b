"""Form fields that the pages of several apps share."""

import json
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget

from ergon_site.access.core import json_text
from ergon_site.access.core.texts import LONGEST_REASON

# In digits; the largest that a column takes has one more.
LONGEST_NUMBER = 18


class WhyField(forms.CharField):
    def __init__(self) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 2})
        super().__init__(
            label="Reason", max_length=LONGEST_REASON, widget=widget, help_text="Recorded in the audit log."
        )


class RowsField(forms.ModelMultipleChoiceField):
    """Several rows by their numbers. One that is too large for any column is no row, instead of an error."""

    def clean(self, value: Any) -> Any:
        for number in value or ():
            if len(str(number)) > LONGEST_NUMBER:
                message = self.error_messages["invalid_pk_value"]
                raise forms.ValidationError(message, code="invalid_pk_value", params={"pk": str(number)[:50]})
        return super().clean(value)


class JsonField(forms.CharField):
    def __init__(self, *, rows: int = 12, **options: Any) -> None:
        attrs = {"rows": rows, "data-json": True, "spellcheck": "false", "autocomplete": "off"}
        super().__init__(widget=UnfoldAdminTextareaWidget(attrs=attrs), strip=False, **options)

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)

    def clean(self, value: Any) -> Any:
        return json_value(super().clean(value))


def json_value(text: str) -> Any:
    """The value of a JSON text, or a refusal that says where it is wrong."""
    try:
        return json_text.parse(text.encode())
    except json_text.MalformedJSONError as error:
        raise forms.ValidationError(str(error).replace("The body", "This")) from None

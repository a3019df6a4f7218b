"""Shared by the bodies of all apps: exactly the fields of their serializer, and a reason."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from ergon_site.access.core.texts import LONGEST_REASON

LONGEST_NAME = 100
FAULTS_TOLD = 20
DECISION_LIMIT = 16 * 1024


class Text(serializers.CharField):
    """A text that somebody has written: numbers are none."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class DecisionSerializer(serializers.Serializer[Any]):
    reason = Text(max_length=LONGEST_REASON, help_text="Recorded in the audit log.")


@contextmanager
def freed(request: Request) -> Iterator[Any]:
    """The body of a request, emptied at the end: the framework's request lives on until garbage is collected."""
    body = request.data
    try:
        yield body
    finally:
        if isinstance(body, dict | list):
            body.clear()


def shaped(shape: type[serializers.Serializer[Any]], body: Any) -> dict[str, Any]:
    """The fields of a body as its shape has them; those that may be left out are there only if they were given."""
    told = shape(data=body)
    faults = {} if told.is_valid() else dict(told.errors)
    unknown = (name for name in body if name not in told.fields) if isinstance(body, Mapping) else ()
    faults |= {name: ["There is no such field."] for name in islice(unknown, FAULTS_TOLD)}
    if faults:
        raise ValidationError(faults)
    return dict(told.validated_data)


def object_fields(body: Any, *, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """The fields of a body that is read by hand: all that are required, and none that is not known."""
    if not isinstance(body, Mapping):
        msg = "This must be an object."
        raise ValidationError(msg)
    faults = {name: ["This field is required."] for name in required if name not in body}
    unknown = (name for name in body if name not in required and name not in optional)
    faults |= {name: ["There is no such field."] for name in islice(unknown, FAULTS_TOLD)}
    if faults:
        raise ValidationError(faults)
    return dict(body)

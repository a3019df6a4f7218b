"""Fields that a pipeline hides stay hidden here: revealing one is written down, and is done in the console."""

from collections.abc import Iterable
from typing import Any

from rest_framework.exceptions import PermissionDenied, ValidationError

from engines.core import redaction
from engines.models import Pipeline
from ergon_site.access.api_identity import Caller
from ergon_site.access.core import scopes

LEFT = (
    f"A hidden field ({redaction.HIDDEN}) stands where no field was hidden, or in a list whose length changed. "
    "Send the real value."
)


def changes(entries: Iterable[dict[str, Any]] | None, paths: list[str]) -> list[dict[str, Any]] | None:
    """The changes of an edited payload, without the values of hidden fields."""
    if entries is None:
        return None
    return [
        {name: value if name == "path" else redaction.HIDDEN for name, value in entry.items()}
        if redaction.covers(paths, entry["path"])
        else entry
        for entry in entries
    ]


def check_bared(caller: Caller, pipeline: Pipeline, redacted: list[str] | None) -> None:
    """Refuse to unhide a field unless the client may see hidden fields."""
    if redacted is None or scopes.allows(caller.scopes, "platform"):
        return
    if bared := [path for path in pipeline.redacted if not redaction.is_within(path, redacted)]:
        msg = f"This client may not use the hidden field {bared[0]}: that needs the scope platform as well."
        raise PermissionDenied(msg)


def restored(payload: Any, original: Any, paths: list[str]) -> Any:
    """The payload of a replay, with hidden fields put back where they were left alone."""
    whole = redaction.restore(payload, original, paths)
    if redaction.is_left(whole, paths):
        raise ValidationError({"payload": LEFT})
    return whole

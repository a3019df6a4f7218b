"""Fields that a pipeline hides stay hidden here: revealing one is written down, and is done in the console."""

from collections.abc import Iterable
from typing import Any

from rest_framework.exceptions import PermissionDenied, ValidationError

from engines import dead_letters, transactions
from engines.core import redaction
from engines.models import DeadLetter, Pipeline
from ergon_site.access.api_identity import Caller
from ergon_site.access.core import scopes

LEFT = (
    f"A hidden field ({redaction.HIDDEN}) stands where no field was hidden, or in a list whose length changed. "
    "Send the real value."
)


def changes(entries: Iterable[dict[str, Any]] | None, paths: list[str]) -> list[dict[str, Any]] | None:
    """The changes of an edited payload, without the values of hidden fields."""
    return None if entries is None else [_change(entry, paths) for entry in entries]


def of_letter(letter: DeadLetter) -> list[str]:
    """The fields that the pipeline of a dead letter hides."""
    paths: list[str] = Pipeline.objects.values_list("redacted", flat=True).filter(name=letter.source).first() or []
    return paths


def for_transaction(uid: str, asked: dict[str, Any]) -> dict[str, Any]:
    """The replay request, with hidden fields put back into an edited payload."""
    if "payload" not in asked:
        return asked
    record = transactions.find(uid)
    return _restored(asked, record.payload, record.pipeline.redacted)


def for_letter(letter_id: int, asked: dict[str, Any]) -> dict[str, Any]:
    if "payload" not in asked:
        return asked
    letter = dead_letters.find(letter_id)
    return _restored(asked, dead_letters.payload_of(letter), of_letter(letter))


def check_bared(caller: Caller, pipeline: Pipeline, redacted: list[str] | None) -> None:
    """Refuse to unhide a field unless the client may see hidden fields."""
    if redacted is None or scopes.allows(caller.scopes, "platform"):
        return
    if bared := [path for path in pipeline.redacted if not redaction.is_within(path, redacted)]:
        msg = f"This client may not use the hidden field {bared[0]}: that needs the scope platform as well."
        raise PermissionDenied(msg)


def _restored(asked: dict[str, Any], original: Any, paths: list[str]) -> dict[str, Any]:
    whole = redaction.restore(asked["payload"], original, paths)
    if redaction.is_left(whole, paths):
        raise ValidationError({"payload": LEFT})
    return {**asked, "payload": whole}


def _change(entry: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    if not redaction.covers(paths, entry["path"]):
        return entry
    return {name: value if name == "path" else redaction.HIDDEN for name, value in entry.items()}

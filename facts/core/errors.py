"""The errors of the boundary. Each class has a stable code for programs."""

from typing import NoReturn

from facts.core.texts import told


class FactError(Exception):
    """The root of everything the boundary raises; `pointer` leads to the field at fault, if there is one."""

    code = "fact_error"
    # The same request may succeed a little later.
    may_pass = False
    # After so many seconds, where that is known.
    retry_after: int | None = None

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.message, self.pointer = message, pointer


class InvalidFactError(FactError):
    code = "invalid_fact"


class PayloadTooLargeError(FactError):
    code = "payload_too_large"


class LengthRequiredError(FactError):
    """The body cannot be read without its length."""

    code = "length_required"


class NotAuthorizedError(FactError):
    """The client may not do this to that zone, consumer or bucket."""

    code = "zone_not_authorized"


class UnknownZoneError(FactError):
    code = "unknown_zone"


class UnusableZoneError(UnknownZoneError):
    """A boundary cannot be created for want of a zone; creating that zone helps, also if it was retired."""

    def __init__(self, message: str, zone: str) -> None:
        super().__init__(message)
        self.zone = zone


class UnknownBoundaryError(FactError):
    code = "unknown_boundary"


class UnknownFactError(FactError):
    code = "unknown_fact"


class UnknownConsumerError(FactError):
    code = "unknown_consumer"


class UnknownObjectError(FactError):
    code = "unknown_object"


class ConflictingDuplicateError(FactError):
    """The message id belongs to another content."""

    code = "conflicting_duplicate"


class ObjectConflictError(FactError):
    """The key belongs to other bytes."""

    code = "object_conflict"


class OffsetOutOfRangeError(FactError):
    """Nothing has that offset yet."""

    code = "offset_out_of_range"


class HistoryTruncatedError(FactError):
    code = "history_truncated"


class ArtifactUnavailableError(FactError):
    """The bytes of the artifact are missing in the storage, or are not those that were uploaded."""

    code = "artifact_unavailable"


class StorageUnavailableError(FactError):
    """The storage of artifacts does not answer, or with an error of its own."""

    code = "storage_unavailable"
    may_pass = True


class UnknownArtifactError(FactError):
    """The fact refers to an artifact that is not there."""

    code = "unknown_artifact"


class DigestMismatchError(FactError):
    """The bytes are not those that were announced, or a fact's reference differs from its artifact."""

    code = "digest_mismatch"


class BufferFullError(FactError):
    code = "buffer_full"
    may_pass = True
    retry_after = 5


class ProvisioningError(FactError):
    """A zone, boundary or consumer cannot be as asked."""

    code = "invalid_provisioning"


class UnauthenticatedError(FactError):
    code = "unauthenticated"


class UnreachableError(FactError):
    """The boundary gave no answer, or none that means anything, however often it was asked."""

    code = "unreachable"
    may_pass = True


class AlarmError(FactError):
    """The source contradicts what was received before: handing over stops until a person has decided.

    `offset` and `last` are the offsets that it is about, where it is about any.
    """

    code = "alarm"

    def __init__(self, message: str, pointer: str = "", *, offset: int | None = None, last: int | None = None) -> None:
        super().__init__(told(message), pointer)
        self.offset, self.last = offset, offset if last is None else last


def error_for(code: str, message: str, pointer: str = "") -> FactError:
    """The error that a problem's code stands for; one with that code if it has no class."""
    kind = next((one for one in FactError.__subclasses__() if one.code == code), FactError)
    error = kind(message, pointer)
    error.code = code
    return error


def refuse(pointer: str, what: str) -> NoReturn:
    """Refuse the field that a JSON Pointer leads to, by its name."""
    name = pointer.rpartition("/")[2] or "the body"
    msg = f"{name} {what}"
    raise InvalidFactError(msg, pointer)

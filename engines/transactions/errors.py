"""Errors of the verbs of transactions."""

from engines.core.errors import EngineError


class RefusedError(EngineError):
    """A verb that cannot be carried out; `code` says why to machines, the message to people.

    Of several drafts, `index` is the place of the one at fault among those of its pipeline, and `item` its place among
    all that were to be kept together.
    """

    code = "refused"
    field = ""
    index = 0
    item: int | None = None


class PipelineUnknownError(RefusedError):
    code = "pipeline_unknown"
    field = "pipeline"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no pipeline named {name!r}")
        self.name = name


class TransactionUnknownError(RefusedError):
    code = "transaction_unknown"


class SubmissionError(RefusedError):
    """A draft with a field that is out of bounds."""

    code = "invalid_transaction"

    def __init__(self, message: str, field: str, index: int = 0) -> None:
        super().__init__(message)
        self.field = field
        self.index = index


class PayloadLimitError(SubmissionError):
    """A payload over its limit."""

    code = "payload_too_large"


class IdTakenError(RefusedError):
    code = "id_taken"
    field = "id"

    def __init__(self, uid: str, pipeline: str, index: int = 0) -> None:
        super().__init__(f"the id {uid!r} belongs to a transaction of the pipeline {pipeline!r}")
        self.index = index


class NotPendingError(RefusedError):
    code = "not_pending"


class NotFinishedError(RefusedError):
    code = "not_finished"

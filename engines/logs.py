"""Log lines of Ergon: what they hide, and where they go in a project that has not configured structlog."""

from collections.abc import MutableMapping
from typing import Any

import structlog

from engines.core.text_redaction import redact_text

# The fields of log lines that repeat what exceptions, executors or other servers said.
SAID = frozenset({"alarm", "error", "exception", "fault", "line", "reason", "traceback", "why"})


def use_logging() -> None:
    """Send events to `logging`, unless the project says where they go: without this structlog prints them."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            redact_errors,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def redact_errors(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hides secrets in what exceptions said; in the message itself only where it comes with an exception."""
    names = {*SAID, "event"} if "exception" in event else SAID
    for name in names:
        if isinstance(event.get(name), str):
            event[name] = redact_text(event[name])
    return event

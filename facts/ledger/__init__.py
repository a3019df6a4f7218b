"""VERBS of the boundary: append, look up, fetch, confirm, put into the forward buffer, skip, truncate, forget ids.

Each is one database transaction and joins the caller's if there is one.
"""

from facts.core.steps import Appended
from facts.ledger.appending import append, append_many, release_connection
from facts.ledger.entries import Entry, prepare
from facts.ledger.reading import Page, confirm, fetch, look_up
from facts.ledger.receiving import Arrival, Received, receive
from facts.ledger.remembering import forget
from facts.ledger.skipping import MOST_AT_ONCE, skip
from facts.ledger.truncating import Truncated, truncate

__all__ = [
    "MOST_AT_ONCE",
    "Appended",
    "Arrival",
    "Entry",
    "Page",
    "Received",
    "Truncated",
    "append",
    "append_many",
    "confirm",
    "fetch",
    "forget",
    "look_up",
    "prepare",
    "receive",
    "release_connection",
    "skip",
    "truncate",
]

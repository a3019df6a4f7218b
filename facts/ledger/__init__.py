"""VERBS of the boundary: append, look up, fetch, confirm, put into the forward buffer, truncate.

Each is one database transaction and joins the caller's if there is one.
"""

from facts.ledger.appending import Appended, append, append_many, release_connection
from facts.ledger.confirming import confirm
from facts.ledger.entries import Entry, prepare
from facts.ledger.reading import Page, fetch, look_up
from facts.ledger.receiving import Arrival, Received, receive
from facts.ledger.truncating import Truncated, truncate

__all__ = [
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
    "look_up",
    "prepare",
    "receive",
    "release_connection",
    "truncate",
]

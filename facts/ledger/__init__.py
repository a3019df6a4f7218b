"""VERBS of the boundary: append, look up, fetch, confirm, put into the forward buffer, truncate.

Each is one database transaction and joins the caller's if there is one.
"""

from facts.ledger.appending import Appended, append, append_many, release_connection
from facts.ledger.confirming import confirm
from facts.ledger.entries import Entry, prepare
from facts.ledger.reading import Page, fetch, look_up

__all__ = [
    "Appended",
    "Entry",
    "Page",
    "append",
    "append_many",
    "confirm",
    "fetch",
    "look_up",
    "prepare",
    "release_connection",
]

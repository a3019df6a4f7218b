"""VERBS of the boundary: append, look up, fetch, confirm, put into the forward buffer, skip, truncate, forget ids.

Each is one database transaction and joins the caller's if there is one.
"""

from facts.core.steps import Appended as Appended
from facts.ledger.appending import (
    append as append,
    append_many as append_many,
    release_connection as release_connection,
)
from facts.ledger.entries import Entry as Entry, prepare as prepare
from facts.ledger.reading import confirm as confirm, fetch as fetch, look_up as look_up
from facts.ledger.receiving import Arrival as Arrival, receive as receive
from facts.ledger.remembering import forget as forget
from facts.ledger.skipping import MOST_AT_ONCE as MOST_AT_ONCE, skip as skip
from facts.ledger.truncating import Truncated as Truncated, truncatable as truncatable, truncate as truncate

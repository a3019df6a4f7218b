"""Which index serves which list: of transactions, dead letters and their groups, each in an index's own order."""

from engines.listing.asking import ListingError, Wanted, wanted
from engines.listing.letters import groups, letters
from engines.listing.records import transactions

__all__ = ["ListingError", "Wanted", "groups", "letters", "transactions", "wanted"]

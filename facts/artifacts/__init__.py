"""VERBS of artifacts: put, find, open, list orphans, sweep, verify.

Bytes lie in a storage of Django, the alias `artifacts`; a row says which they are. The bytes come first and go
last, so that there is no row without its bytes; bytes without a row are swept.
"""

from facts.artifacts.reading import Slice, check_there, find, open_slice
from facts.artifacts.storing import Announced, Put, put
from facts.artifacts.sweeping import orphans, sweep
from facts.artifacts.verifying import verify

__all__ = [
    "Announced",
    "Put",
    "Slice",
    "check_there",
    "find",
    "open_slice",
    "orphans",
    "put",
    "sweep",
    "verify",
]

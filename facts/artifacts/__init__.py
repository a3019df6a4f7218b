"""VERBS of artifacts: put, find, open, list orphans, sweep, verify.

Bytes lie in a storage of Django, the alias `artifacts`; a row says which they are. The bytes come first and go
last, so that there is no row without its bytes; bytes without a row are swept.
"""

from facts.artifacts.reading import check_there as check_there, find as find, open_slice as open_slice
from facts.artifacts.storing import Announced as Announced, Put as Put, put as put
from facts.artifacts.sweeping import orphans as orphans, sweep as sweep, sweep_orphan as sweep_orphan

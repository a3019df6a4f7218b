"""The fact boundary: an append-only log between zones."""

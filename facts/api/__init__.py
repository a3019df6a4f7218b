"""The boundary over HTTP."""

"""Rules as pure functions and frozen values; the standard library only."""

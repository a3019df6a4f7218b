"""The suite, by promise."""

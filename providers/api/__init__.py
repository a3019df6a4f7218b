"""The API of providers: health, calls, overrides."""

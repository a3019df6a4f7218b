"""Queries of providers: lists, counts and health. Used by console, API and commands alike."""

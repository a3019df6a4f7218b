"""Queries of the engines: lists, counts, status, explain, doctor. Used by console, API and commands alike."""

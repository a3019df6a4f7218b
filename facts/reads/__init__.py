"""Queries of facts: lists, lineage and health. Used by console, API and commands alike."""

"""Providers to build on: one that makes everything up, and the base of those that speak HTTP."""

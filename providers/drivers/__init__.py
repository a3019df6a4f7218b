"""Drivers perform what the rules of an execution ask for: threads and asyncio share everything but the waiting."""

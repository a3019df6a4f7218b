"""Perform the steps that the core asks for: threads and asyncio."""

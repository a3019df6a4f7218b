"""Handlers in other processes: the protocol, the parent side, the child side.

This much is loaded by every executor: no Django, no database, the standard library alone.
"""

from engines.executors.handlers import HandlerRegistry as HandlerRegistry, RetryJob as RetryJob
from engines.executors.protocol import ExecutionContext as ExecutionContext

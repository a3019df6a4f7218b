"""Tasks that both consume and produce."""

from engines.consumer import AsyncConsumerMixin, ConsumerMixin
from engines.producer import AsyncProducerMixin, ProducerMixin
from engines.registry import Task


class HybridTask(ConsumerMixin, ProducerMixin, Task):
    """A threaded task that consumes and produces."""


class AsyncHybridTask(AsyncConsumerMixin, AsyncProducerMixin, Task):
    """An async task that consumes and produces."""

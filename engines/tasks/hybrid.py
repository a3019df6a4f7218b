"""Tasks that both consume and produce."""

from engines.tasks.consumer import AsyncConsumerMixin, ConsumerMixin
from engines.tasks.producer import AsyncProducerMixin, ProducerMixin
from engines.tasks.registry import Task


class HybridTask(ConsumerMixin, ProducerMixin, Task):
    """A threaded task that consumes and produces."""


class AsyncHybridTask(AsyncConsumerMixin, AsyncProducerMixin, Task):
    """An async task that consumes and produces."""

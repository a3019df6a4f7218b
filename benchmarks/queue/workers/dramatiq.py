import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.queue.jobs import enter

broker = RedisBroker(url=os.environ["BENCHMARK_BROKER"])
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(carried: dict[str, Any]) -> None:
    enter(carried["number"])

"""Real servers without an administrator, for the demo, the tests and the benchmarks.

PostgreSQL and Valkey come from their wheels, RabbitMQ from the system's packages. Each is a context manager that yields
the server's address. A server is a child of the process that started it, listens on a free loopback port, asks for a
password, and is gone when the block ends or the process dies.
"""

from ergon_site.embedded.postgresql import postgres, standby
from ergon_site.embedded.rabbitmq_node import RABBITMQ, has_rabbitmq, rabbitmq
from ergon_site.embedded.server import ServerError
from ergon_site.embedded.valkey_server import valkey

__all__ = ["RABBITMQ", "ServerError", "has_rabbitmq", "postgres", "rabbitmq", "standby", "valkey"]

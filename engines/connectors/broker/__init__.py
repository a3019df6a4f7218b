"""Transactions as messages of a broker: RabbitMQ, Redis or Valkey, through kombu."""

from engines.connectors.broker.connector import BrokerConnector as BrokerConnector

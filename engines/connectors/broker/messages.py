"""Message bodies: a transaction as `Transaction.to_json` writes it, or as `manage.py submit` takes it."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeAlias

import uuid_utils

from engines.core import failures
from engines.core.errors import POISON, ConnectorError, ExceptionType, PoisonError, TransactionException
from engines.core.outcome import Failure
from engines.tasks.transaction import Transaction

LONGEST_BODY = 16 * 1024 * 1024
LONGEST_HEADER = 2000
# What a submission may say and a broker cannot do: it has an order of its own and recognises nothing.
_WITHOUT_MEANING = ("priority", "dedupe_key")
_OWN = [one.name for one in fields(Transaction)]

# RabbitMQ's number of a delivery, or the name that we give to one of Redis or Valkey.
Tag: TypeAlias = int | bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Delivery:
    """A message in our hands: what it holds, and what it takes to settle it."""

    tag: Tag
    session: int = 0
    body: bytes
    headers: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    # Why its headers and properties could not be read.
    fault: str = ""
    # How often it came back from a worker that died over it; and whether its next start is to be counted.
    returns: int = 0
    is_suspect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredTransaction(Transaction):
    """A transaction that a broker has handed over and waits to hear of."""

    delivery: Delivery


class MalformedMessageError(TransactionException):
    """A message that is no transaction. Another attempt would not make it one."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExceptionType.BUSINESS)


def delivery_of(transaction: Transaction) -> Delivery:
    if not isinstance(transaction, DeliveredTransaction):
        msg = f"the transaction {transaction.id!r} did not come from this broker"
        raise ConnectorError(msg)
    return transaction.delivery


def transaction_in(delivery: Delivery) -> DeliveredTransaction:
    """The transaction in a message; one without an id takes the message's."""
    if delivery.returns >= POISON:
        raise PoisonError(delivery.returns)
    if delivery.fault:
        msg = f"the properties of the message cannot be read: {delivery.fault}"
        raise MalformedMessageError(msg)
    return _delivered(delivery)


def _delivered(delivery: Delivery) -> DeliveredTransaction:
    try:
        found = _parsed(delivery)
    except (ValueError, TypeError, RecursionError) as error:
        msg = f"the message is not a transaction: {error}"
        raise MalformedMessageError(msg) from None
    return DeliveredTransaction(**{name: getattr(found, name) for name in _OWN}, delivery=delivery)


def stand_in(delivery: Delivery) -> DeliveredTransaction:
    """The transaction of a message that is not run, or one with the message's text as payload."""
    with suppress(MalformedMessageError):
        return _delivered(delivery)
    text = failures.storable(delivery.body[:LONGEST_BODY].decode("utf-8", "replace"))
    return DeliveredTransaction(_id_of(delivery), text, delivery=delivery)


def error_headers(failure: Failure) -> dict[str, str]:
    """The headers of a dead message: why it failed, never its content."""
    error = (failure.origin or failure).error
    return {
        "ergon-error-type": failures.error_type(error),
        "ergon-error-message": failures.message_of(error)[:LONGEST_HEADER],
        "ergon-error-category": failures.category_of(failure).value,
        "ergon-failed-at": datetime.now(UTC).isoformat(),
    }


def _parsed(delivery: Delivery) -> Transaction:
    if len(delivery.body) > LONGEST_BODY:
        msg = f"it has {len(delivery.body):,} bytes; the limit is {LONGEST_BODY:,}"
        raise ValueError(msg)
    values = json.loads(delivery.body)
    if isinstance(values, dict):
        available_at = values.pop("available_at", None)
        if available_at is not None and datetime.fromisoformat(available_at) > datetime.now(UTC):
            msg = f"it is available only at {available_at}, and a broker cannot delay messages"
            raise ValueError(msg)
        said = {
            name: value
            for name, value in values.items()
            if name == "payload" or (value is not None and name not in _WITHOUT_MEANING)
        }
        values = {"id": _id_of(delivery), **said}
    return Transaction.from_dict(values)


def _id_of(delivery: Delivery) -> str:
    return str(delivery.properties.get("message_id") or uuid_utils.uuid7())

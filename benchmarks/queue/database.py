"""A connection to the database of a contender that brings none of its own; one for each process."""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import psycopg


@cache
def connection() -> psycopg.Connection:
    return psycopg.connect(os.environ["BENCHMARK_DATABASE"], autocommit=True)


def execute(statement: str, parameters: Sequence[Any] | None = None) -> psycopg.Cursor:
    return connection().execute(statement.encode(), parameters)


def number(statement: str) -> int:
    row = execute(statement).fetchone()
    return int(row[0]) if row else 0

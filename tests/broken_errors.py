"""Errors that are broken themselves."""

from engines import TransactionException


class MuteError(Exception):
    """An error that cannot be asked what it says."""

    def __str__(self) -> str:
        raise ValueError


class Hollow(TransactionException):
    """A subclass that forgot to call its parent's constructor."""

    def __init__(self) -> None:
        pass


class UnsureError(Exception):
    """An error that cannot be asked whether it is one."""

    def __bool__(self) -> bool:
        raise ValueError

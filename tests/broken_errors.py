"""Errors that are broken themselves."""

import time

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


class SlowError(Exception):
    """An error that takes its time to say what it is."""

    def __str__(self) -> str:
        time.sleep(self.args[0])
        return "slow"

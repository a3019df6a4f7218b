"""The name of the program that runs commands here, for texts that tell what to type."""

import sys
from pathlib import PurePath

INSTALLED = "ergon"


def typed(command: str) -> str:
    """A command as it is typed here: after `ergon` if that was started, else after `manage.py`."""
    return f"{INSTALLED if PurePath(sys.argv[0]).name == INSTALLED else 'manage.py'} {command}"

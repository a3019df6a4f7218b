"""`python -m tests.faults.submitter FILE PIPELINE…`: submits one transaction after the other until SIGTERM.

What the database has confirmed is written to the file, an id a line. What it has not is submitted again, with the same
id and on a new connection, as any client must.
"""

import os
import signal
import sys
import time
from pathlib import Path

import django


def main() -> None:
    file, pipelines = Path(sys.argv[1]), sys.argv[2:]
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()
    from django.db import DatabaseError, connection

    from engines import transactions

    signal.signal(signal.SIGTERM, _stop)
    number = 0
    with file.open("a", buffering=1) as confirmed:
        while not _stopped:
            try:
                transactions.submit(pipelines[number % len(pipelines)], {}, id=f"s{number}")
            except DatabaseError:
                connection.close()
                time.sleep(0.05)
            else:
                confirmed.write(f"s{number}\n")
                number += 1


_stopped: list[int] = []


def _stop(number: int, _frame: object) -> None:
    _stopped.append(number)


if __name__ == "__main__":
    main()

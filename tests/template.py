"""`python -m tests.template KIND FOLDER`: makes the migrated database that each pass of a run copies."""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import django
from django.db import connection

from tests import database, servers


def main(kind: str, folder: Path) -> None:
    servers.forget_environment()
    with ExitStack() as stack:
        os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
        os.environ["ERGON_DATA_DIR"] = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["DATABASE_URL"] = servers.database_of(kind, folder, stack)
        django.setup()
        database.choose_file(folder)
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
        database.keep_copy()
        connection.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

"""Synchronous standbys of PostgreSQL, for which a commit waits if it has written something."""

from django.db import connection

# Written into the log as a part of this transaction, and of no meaning to anybody. It locks no row.
WRITE_NOTHING = "SELECT pg_logical_emit_message(true, 'ergon', '')"


def wait_as_writer() -> None:
    """Have the commit of what was found wait for the standbys, as the commit of whoever wrote it did.

    That one's wait may have been broken off, and then the standbys lack what is found here. To answer that it is kept,
    when it is asked for again, is to confirm it.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(WRITE_NOTHING)

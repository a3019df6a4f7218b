"""Console sessions in the database: Django's own, which also know when they expire."""

from datetime import datetime
from typing import Any

from django.contrib.sessions.backends import db


class SessionStore(db.SessionStore):
    """`expires_at` is what the row said when it was read; None for a session that has no row yet."""

    expires_at: datetime | None = None

    def _get_session_from_db(self) -> Any:
        row = super()._get_session_from_db()  # type: ignore[misc]
        self.expires_at = row.expire_date if row else None
        return row

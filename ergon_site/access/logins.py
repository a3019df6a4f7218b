"""VERBS of logins to the console: begin, succeed, forget. Failures are counted in the database, for all processes.

An attempt is counted before the password is looked at and taken back when it was right, so that many attempts at the
same time are no way around the limits. What has no row has not failed.
"""

from datetime import timedelta
from hashlib import sha256

import structlog
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from ergon_site.access.conf import setting
from ergon_site.access.core import limits
from ergon_site.access.core.limits import Count, Counter
from ergon_site.access.database.calls import retry_conflicts
from ergon_site.access.models import FailedLogins

LONGEST_ACCOUNT = 150
COUNT_ONE = """
INSERT INTO access_failedlogins AS known (key, attempts, ends_at) VALUES (%s, 1, %s)
ON CONFLICT (key) DO UPDATE
   SET attempts = CASE WHEN known.ends_at <= %s THEN 1 ELSE known.attempts + 1 END,
       ends_at = CASE WHEN known.ends_at <= %s THEN excluded.ends_at ELSE known.ends_at END
"""

log = structlog.get_logger("ergon.access")


@retry_conflicts
@transaction.atomic
def begin(account: str, address: str) -> float:
    """Count an attempt; the seconds to wait if it must not be made."""
    for counter, key in _keys(account, address).items():
        now = timezone.now()
        times = [now + timedelta(seconds=setting("ERGON_LOGIN_LOCKOUT")), now, now]
        with connection.cursor() as cursor:
            cursor.execute(COUNT_ONE, [key, *map(connection.ops.adapt_datetimefield_value, times)])
        row = FailedLogins.objects.get(pk=key)
        count = Count(counter, row.attempts, (row.ends_at - now).total_seconds())
        if wait := limits.wait(count, setting("ERGON_LOGIN_FAILURES")):
            # What is refused here does not count further on: one address alone must not lock a person out elsewhere.
            about = {"account": account[:LONGEST_ACCOUNT], "address": address}
            log.warning("login_refused", **about, seconds=round(wait), failures_of=counter.value)
            return wait
    return 0.0


def fail(account: str, address: str) -> None:
    """An attempt that was counted has failed."""
    log.warning("login_failed", account=account[:LONGEST_ACCOUNT], address=address)


def succeed(account: str, address: str) -> None:
    take_back(account, address)
    log.info("logged_in", account=account[:LONGEST_ACCOUNT], address=address)


@retry_conflicts
@transaction.atomic
def take_back(account: str, address: str) -> None:
    """Uncount an attempt whose password was right, and forget the failures of this account at this address."""
    keys = _keys(account, address)
    FailedLogins.objects.filter(key=keys.pop(Counter.PAIR)).delete()
    for key in keys.values():
        FailedLogins.objects.filter(key=key, attempts__gt=0).update(attempts=F("attempts") - 1)


def forget() -> int:
    """Drop failures whose time is over; how many."""
    return FailedLogins.objects.filter(ends_at__lt=timezone.now()).delete()[0]


def _keys(account: str, address: str) -> dict[Counter, str]:
    """In the order in which they are counted, always the same: no two logins wait for each other."""
    named = {Counter.PAIR: (account, address), Counter.ADDRESS: (address,), Counter.ACCOUNT: (account,)}
    texts = {counter: "\0".join((counter, *names)) for counter, names in named.items()}
    return {counter: sha256(text.encode(errors="surrogatepass")).hexdigest() for counter, text in texts.items()}

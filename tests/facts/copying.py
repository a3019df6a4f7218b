"""`python -m tests.facts.copying`: appends many facts at once, and stands still while it copies them."""

import os
import signal
from typing import Any

import django


class Slow(dict[str, Any]):
    """A draft that stops its process once, when it is prepared: the copy has begun by then."""

    has_stopped = False

    def __getitem__(self, name: str) -> Any:
        if not self.has_stopped:
            self.has_stopped = True
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().__getitem__(name)


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()
    from facts import ledger
    from facts.ledger import postgresql
    from tests.facts.drafts import draft

    drafts = [draft(number) for number in range(postgresql.COPIED_FROM)]
    ledger.append_many([*drafts, Slow(draft(len(drafts)))])


if __name__ == "__main__":
    main()

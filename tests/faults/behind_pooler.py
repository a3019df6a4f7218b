"""`python -m tests.faults.behind_pooler COUNT`: submits, appends facts, reads and confirms them, and calls a provider.

From several threads at once, so that each statement of a thread may be given to another session of the server. The
pipeline `orders`, a boundary and the consumer `erp` must be there. Prints what it has done.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django

THREADS = 6


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()
    from django.db import connections

    with ThreadPoolExecutor(THREADS) as pool:
        done = list(pool.map(_work, range(int(sys.argv[1]))))
        for _ in range(THREADS):
            pool.submit(connections.close_all)
    read = _read()
    print(json.dumps({"submitted": [uid for one in done for uid in one], "read": read}))


def _work(number: int) -> list[str]:
    from engines import transactions
    from facts import ledger
    from tests.facts.drafts import draft
    from tests.providers.scripted_providers import Scripted

    ids = [transactions.submit("orders", {"n": number}).id]
    ids += [one.id for one in transactions.submit_many("orders", [transactions.Draft({"n": number})] * 3)]
    name = f"{os.getpid()}-{number}"
    ledger.append(draft(name))
    ledger.append_many([draft(f"{name}-{part}") for part in range(3)])
    ledger.append_many([draft(f"{name}-copied-{part}") for part in range(50)])
    assert Scripted({"rank": 1}).ask().payload == {"rank": 1}
    return ids


def _read() -> int:
    """Everything by a cursor in chunks, and by a consumer, page by page."""
    from engines.models import TransactionRecord
    from facts import ledger

    assert len(list(TransactionRecord.objects.iterator(chunk_size=7))) > 0
    read = 0
    while facts := _page(ledger):
        read += len(facts)
    return read


def _page(ledger: Any) -> list[Any]:
    facts: list[Any] = ledger.fetch("erp", limit=1000).facts
    if facts:
        ledger.confirm("erp", facts[-1][0])
    return facts


if __name__ == "__main__":
    main()

"""`python -m tests.faults.claimers PIPELINE COUNT BATCH`: so many processes claim at once until nothing is left.

Prints the ids that each got, one process a line.
"""

import os
import sys

import django


def main() -> None:
    pipeline_name, count, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ["DJANGO_SETTINGS_MODULE"] = "ergon_site.settings"
    django.setup()
    from engines import pipelines, transactions

    pipeline = pipelines.find(pipeline_name)
    django.db.connections.close_all()
    start, go = os.pipe()
    for number in range(count):
        if os.fork() == 0:
            os.close(go)
            os.read(start, 1)  # ends for all at once, when the parent closes its side
            taken = []
            while leased := transactions.claim(pipeline.pk, batch, number + 1):
                taken += [one.id for one in leased]
            os.write(1, f"{' '.join(taken)}\n".encode())
            os._exit(0)
    os.close(go)
    failures = sum(os.wait()[1] != 0 for _ in range(count))
    sys.exit(failures)


if __name__ == "__main__":
    main()

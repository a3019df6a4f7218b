"""What the database connectors of a process share: worker row, heartbeat, settler, watch for arrivals."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import structlog
from django.db import DatabaseError, connection

from engines import transactions, workers
from engines.conf import settings
from engines.connectors.arrivals import Arrivals
from engines.connectors.outage import Outage
from engines.connectors.settler import Settler
from engines.core.errors import headline
from engines.transactions import Lease, LeasedTransaction

log = structlog.get_logger("ergon.worker")


class Station:
    """Makes this process a worker for as long as the block lasts."""

    def __init__(
        self,
        pipelines: Sequence[str],
        abandoned: Callable[[], int] = lambda: 0,
        executors: Callable[[], list[dict[str, Any]]] = list,
    ) -> None:
        self._pipelines = list(pipelines)
        self._abandoned, self._executors = abandoned, executors
        self._held: dict[int, Lease] = {}
        self._missing: set[int] = set()
        self._untold: Counter[tuple[int, bool]] = Counter()
        self._errands: list[Callable[[], None]] = []
        self._elsewhere: list[Callable[[], int]] = []
        self._said: dict[Callable[[], Any], str] = {}
        self._tallying = threading.Lock()
        self._over = threading.Event()
        self._outage = Outage("renew leases")
        self.is_stopping = False

    def __enter__(self) -> Self:
        self.worker = workers.enrol(self._pipelines)
        self.settler = Settler(self.worker.pk, self._settled)
        self.arrivals = Arrivals()
        self._heart = threading.Thread(target=self._beat, name="ergon-heart", daemon=True)
        self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._outage.give_up()
        self._heart.join(1.0)
        self.arrivals.close()
        self.settler.close()
        self._retire()

    def _retire(self) -> None:
        """On a connection that is surely alive; where there is none, the missing heartbeat says it as well."""
        connection.close()
        try:
            self._write_tally()
            workers.retire(self.worker.pk, settled=self.settler.settled, executors=self._executors())
        except DatabaseError as error:
            log.warning("farewell_unheard", error=headline(error))

    @property
    def in_flight(self) -> int:
        return len(self._held) + sum(count() for count in self._elsewhere)

    def hold(self, batch: Iterable[LeasedTransaction]) -> None:
        """Renew their leases until they are settled or given back."""
        for transaction in batch:
            self._held[transaction.lease.id] = transaction.lease

    def drop(self, batch: Iterable[LeasedTransaction]) -> None:
        for transaction in batch:
            if self._held.get(transaction.lease.id) is transaction.lease:
                del self._held[transaction.lease.id]

    def tally(self, pipeline_id: int, *, is_success: bool) -> None:
        """Count what ended elsewhere; written down with the next heartbeat."""
        with self._tallying:
            self._untold[pipeline_id, is_success] += 1

    def also_counts(self, count: Callable[[], int]) -> None:
        """Among what is in flight: so many that have no lease here."""
        self._elsewhere.append(count)

    def at_every_beat(self, errand: Callable[[], None]) -> None:
        """Do this every second or so, where the database may be asked."""
        self._errands.append(errand)

    def flush(self) -> None:
        """Whatever takes longer than a lease is run by somebody else anyway."""
        self.settler.flush(settings().lease)

    def _settled(self, batch: Sequence[LeasedTransaction]) -> None:
        self.drop(batch)

    def _beat(self) -> None:
        """Renew, report, rescue; a heart that cannot beat tries until it can."""
        following, every = 0.0, settings().heartbeat
        while not self._over.wait(min(1.0, settings().lease / 10)):
            if time.monotonic() >= following:
                following = time.monotonic() + every
                self._try(self._renew)
            self._try(transactions.rescue)
            for errand in (self._write_tally, *self._errands):
                self._try(errand)
        connection.close()

    def _try(self, call: Callable[[], Any]) -> None:
        """A heart that stopped would let every lease lapse while the process works on: nothing may stop it."""
        try:
            self._outage.wait_out(call)
        except Exception as error:
            if self._said.get(call) != headline(error):  # once, not at every beat
                log.exception("heartbeat_failed", to=call.__name__.strip("_"), error=headline(error))
            self._said[call] = headline(error)
            self._outage.close_connection()
        else:
            self._said.pop(call, None)

    def _write_tally(self) -> None:
        for key, count in list(self._untold.items()):
            pipeline_id, is_success = key
            ended = {"succeeded": count} if is_success else {"failed": count}
            transactions.count_ends(pipeline_id, worker=self.worker.pk, **ended)
            # Only now: what the database did not take is told the next time.
            with self._tallying:
                self._untold[key] -= count
                self._untold += Counter()  # without those that are at 0

    def _renew(self) -> None:
        held = list(self._held.values())
        renewed = transactions.heartbeat(held)
        # Missing twice: what was settled a moment ago is missing once.
        missing = {lease.id for lease in held if lease.id not in renewed and lease.id in self._held}
        for lease_id in missing & self._missing:
            log.warning(
                "lease_lost", record=lease_id, hint="its worker was too slow to renew it; its outcome will not count"
            )
            self._held.pop(lease_id, None)
        self._missing = missing
        workers.beat(
            self.worker.pk,
            in_flight=self.in_flight,
            abandoned=self._abandoned(),
            settled=self.settler.settled,
            is_stopping=self.is_stopping,
            executors=self._executors(),
        )
        workers.notice_the_dead()

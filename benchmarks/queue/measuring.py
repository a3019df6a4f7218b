"""One run: every contender in turns, round after round. Whoever fails is left out, with a line that says why."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeAlias

from benchmarks.queue.children import Child, FailedError, child, workers
from benchmarks.queue.contenders import Contender
from benchmarks.queue.servers import MissingServerError, Servers

PROCESSES = (1, 2)
# Ten million rows are made in some minutes.
HISTORY_LIMIT = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    rounds: int = 3
    share: float = 1.0
    singly: int = 500
    lone: int = 500
    history: tuple[int, ...] = (10_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Figures:
    """What came out: by contender and measure, a figure for each time it was measured."""

    of: defaultdict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, key: str, **measured: float) -> None:
        for measure, figure in measured.items():
            self.of[key, measure].append(figure)


@dataclass(frozen=True, slots=True)
class Place:
    """Where one measurement happens: a folder of its own, and what its processes are told."""

    key: str
    contender: Contender
    environment: dict[str, str]
    log: Path

    def child(self, action: str, *numbers: int) -> AbstractContextManager[Child]:
        return child([self.key, action, *map(str, numbers)], self.environment, self.log)

    def workers(self, processes: int, *, drain: bool) -> AbstractContextManager[list[Child]]:
        return workers(self.contender.commands(processes, drain=drain), self.environment, self.log)


class Run:
    def __init__(self, servers: Servers, plan: Plan) -> None:
        self.servers = servers
        self.plan = plan
        self.figures = Figures()
        self._places = count(1)

    def measure(self, chosen: dict[str, Contender]) -> Figures:
        present = {key: contender for key, contender in chosen.items() if self._try(self._install, key, contender)}
        ergon = present.get("ergon")
        for number in range(self.plan.rounds):
            print(f"  round {number + 1} of {self.plan.rounds}", flush=True)
            self._round(present)
            if ergon:
                self._try(self._bare, "ergon", ergon)
        print("  lone transactions", flush=True)
        for key, contender in present.items():
            if contender.wakes:
                self._try(self._lone, key, contender)
        if ergon:
            print("  history", flush=True)
            self._try(self._history, "ergon", ergon)
        return self.figures

    def _round(self, present: dict[str, Contender]) -> None:
        for key, contender in list(present.items()):
            if not all(self._try(self._drain, key, contender, processes) for processes in PROCESSES):
                del present[key]

    def _try(self, part: "Part", key: str, contender: Contender, processes: int = 1) -> bool:
        try:
            with self._place(key, contender, processes) as place:
                part(place, processes)
        except (FailedError, MissingServerError) as error:
            print(f"  {contender.name} is left out: {error}", flush=True)
            return False
        return True

    @contextmanager
    def _place(self, key: str, contender: Contender, processes: int) -> Iterator[Place]:
        folder = self.servers.folder / f"{next(self._places)}-{key}"
        folder.mkdir()
        told = {"BENCHMARK_FOLDER": str(folder), "BENCHMARK_PROCESSES": str(processes)}
        yield Place(key, contender, {**contender.environment(self.servers), **told}, folder / "log")

    def _install(self, place: Place, _processes: int) -> None:
        with place.child("install") as process:
            process.answer()

    def _drain(self, place: Place, processes: int) -> None:
        jobs = int(place.contender.jobs * self.plan.share)
        with place.child("drain", jobs, self.plan.singly) as submitter:
            self.figures.add(place.key, **submitter.answer())
            with place.workers(processes, drain=True) as crew:
                drained = submitter.answer(crew)
        self.figures.add(place.key, **{f"{measure}_{processes}": figure for measure, figure in drained.items()})

    def _bare(self, place: Place, _processes: int) -> None:
        with place.child("bare", self.plan.singly) as submitter:
            self.figures.add("bare", **submitter.answer())

    def _lone(self, place: Place, processes: int) -> None:
        with place.child("lone", self.plan.lone) as submitter, place.workers(processes, drain=False) as crew:
            submitter.answer(crew)
            self.figures.add(place.key, memory=sum(worker.memory() for worker in crew))
            submitter.go_on()
            self.figures.add(place.key, **submitter.answer(crew))

    def _history(self, place: Place, _processes: int) -> None:
        for size in self.plan.history:
            with place.child("history", size, self.plan.rounds) as process:
                for _ in range(self.plan.rounds):
                    self.figures.add(f"history {size}", **process.answer(limit=HISTORY_LIMIT))


Part: TypeAlias = Callable[[Place, int], None]

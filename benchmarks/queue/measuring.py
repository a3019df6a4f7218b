"""One run: every contender in turns, round after round. Whoever fails is left out, with a line that says why."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeAlias

from benchmarks.queue.children import Child, FailedError, submitter, workers
from benchmarks.queue.contenders import Contender
from benchmarks.queue.servers import MissingServerError, Servers

PROCESSES = (1, 2)
# Their ratios have goals within a few percent; single drains differ by more than that.
CLOSE = {"ergon", "limited", "raw"}
# Ten million rows are made in some minutes.
HISTORY_LIMIT = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    rounds: int = 3
    often: int = 3  # drains of close contenders in each round
    share: float = 1.0
    singly: int = 500
    lone: int = 500
    bursts: int = 50
    crowd: int = 5  # seconds
    idle: int = 10  # seconds
    history: tuple[int, ...] = (10_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Figures:
    """What came out: by contender and measure, a figure for each time it was measured."""

    of: defaultdict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, key: str, **measured: float) -> None:
        for measure, figure in measured.items():
            self.of[key, measure].append(figure)


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender in a run, with the process that submits to it."""

    key: str
    contender: Contender
    environment: dict[str, str]
    submitter: Child

    def ask(self, action: str, folder: Path, *numbers: int) -> None:
        self.submitter.ask(action, str(folder), *numbers)

    @contextmanager
    def workers(self, folder: Path, processes: int, *, drain: bool) -> Iterator[list[Child]]:
        told = {"BENCHMARK_FOLDER": str(folder), "BENCHMARK_PROCESSES": str(processes)}
        commands = self.contender.commands(processes, drain=drain)
        with workers(commands, {**self.environment, **told}, folder / "log") as crew:
            yield crew


Part: TypeAlias = Callable[[Entrant, Path], None]


class Run:
    def __init__(self, servers: Servers, plan: Plan, figures: Figures) -> None:
        self.servers = servers
        self.plan = plan
        self.figures = figures
        self._numbers = count(1)

    def measure(self, chosen: dict[str, Contender]) -> None:
        with ExitStack() as stack:
            entrants = {key: self._enter(stack, key, contender) for key, contender in chosen.items()}
            present = {key: entrant for key, entrant in entrants.items() if entrant}
            for number in range(1, self.plan.rounds + 1):
                self._each(f"round {number} of {self.plan.rounds}", present, self._round)
            wake = {key: entrant for key, entrant in present.items() if entrant.contender.wakes}
            self._each("lone transactions", wake, self._lone)
            self._each("bursts", {key: present[key] for key in present if key == "ergon"}, self._bursts)
            self._each("sixteen clients", {key: present[key] for key in present if key == "ergon"}, self._crowd)
            self._each("history", {key: present[key] for key in present if key == "ergon"}, self._history)

    def _enter(self, stack: ExitStack, key: str, contender: Contender) -> Entrant | None:
        try:
            environment = contender.environment(self.servers)
        except MissingServerError as error:
            print(f"  {contender.name} is left out: {error}", flush=True)
            return None
        process = stack.enter_context(submitter(key, environment, self._folder(key) / "log"))
        entrant = Entrant(key, contender, environment, process)
        return entrant if self._try(self._install, entrant) else None

    def _each(self, title: str, present: dict[str, Entrant], part: Part) -> None:
        print(f"  {title}", flush=True)
        for key, entrant in list(present.items()):
            if not self._try(part, entrant):
                del present[key]

    def _try(self, part: Part, entrant: Entrant) -> bool:
        try:
            part(entrant, self._folder(entrant.key))
        except FailedError as error:
            print(f"  {entrant.contender.name} is left out from here: {error}", flush=True)
            return False
        return True

    def _folder(self, key: str) -> Path:
        folder = self.servers.folder / f"{next(self._numbers)}-{key}"
        folder.mkdir()
        return folder

    def _install(self, entrant: Entrant, folder: Path) -> None:
        entrant.ask("install", folder)
        entrant.submitter.answer()

    def _round(self, entrant: Entrant, _folder: Path) -> None:
        for processes in PROCESSES * (self.plan.often if entrant.key in CLOSE else 1):
            self._drain(entrant, self._folder(entrant.key), processes)
        if entrant.key == "ergon":
            self._bare(entrant, self._folder(entrant.key))

    def _drain(self, entrant: Entrant, folder: Path, processes: int) -> None:
        entrant.ask("drain", folder, int(entrant.contender.jobs * self.plan.share), self.plan.singly)
        self.figures.add(entrant.key, **entrant.submitter.answer())
        with entrant.workers(folder, processes, drain=True) as crew:
            drained = entrant.submitter.answer(crew)
        self.figures.add(entrant.key, **{f"{measure}_{processes}": figure for measure, figure in drained.items()})

    def _bare(self, entrant: Entrant, folder: Path) -> None:
        entrant.ask("bare", folder, self.plan.singly)
        measured = entrant.submitter.answer()
        self.figures.add(entrant.key, own=measured.pop("own"))
        self.figures.add("bare", **measured)

    def _lone(self, entrant: Entrant, folder: Path) -> None:
        entrant.ask("lone", folder, self.plan.lone)
        with entrant.workers(folder, 1, drain=False) as crew:
            entrant.submitter.answer(crew)
            self.figures.add(entrant.key, memory=sum(worker.memory() for worker in crew), idle=self._idle(crew))
            entrant.submitter.ask()
            self.figures.add(entrant.key, **entrant.submitter.answer(crew))

    def _idle(self, crew: list[Child]) -> float:
        """The CPU use of a waiting worker, in percent of a core."""
        before, began = sum(worker.cpu_time() for worker in crew), time.monotonic()
        time.sleep(self.plan.idle)
        return 100 * (sum(worker.cpu_time() for worker in crew) - before) / (time.monotonic() - began)

    def _bursts(self, entrant: Entrant, folder: Path) -> None:
        entrant.ask("bursts", folder, self.plan.bursts)
        with entrant.workers(folder, 1, drain=False) as crew:
            entrant.submitter.answer(crew)
            entrant.submitter.ask()
            self.figures.add(entrant.key, **entrant.submitter.answer(crew))

    def _crowd(self, entrant: Entrant, folder: Path) -> None:
        entrant.ask("crowd", folder, self.plan.rounds, self.plan.crowd)
        for _ in range(self.plan.rounds):
            self.figures.add(entrant.key, **entrant.submitter.answer())

    def _history(self, entrant: Entrant, folder: Path) -> None:
        for size in self.plan.history:
            entrant.ask("history", folder, size, self.plan.rounds)
            for _ in range(self.plan.rounds):
                self.figures.add(f"history {size}", **entrant.submitter.answer(limit=HISTORY_LIMIT))

"""The design's import rules, as contract types for Import Linter."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


@dataclass(frozen=True, slots=True)
class Pattern:
    """`engines.core` names a module and all below it; `*` stands for one name."""

    text: str

    def covers(self, module: str) -> bool:
        expression = re.escape(self.text).replace(r"\*", r"[^.]+")
        return re.fullmatch(rf"{expression}(\..*)?", module) is not None


class Rules(Contract):
    """A contract that lists the imports that break it."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001
        faults = sorted(self.faults(graph))
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["faults"]:
            output.print_error(f"{importer} must not import {imported}")

    def faults(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        raise NotImplementedError


class MayImport(Rules):
    """`modules` may import of this project only `may_import`; and `outside`, everything or the standard library."""

    modules: Any = fields.SetField(subfield=fields.StringField())
    may_import: Any = fields.SetField(subfield=fields.StringField(), required=False, default=set())
    outside: Any = fields.StringField(required=False, default="everything")

    def faults(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        own = {module.split(".")[0] for module in graph.modules if not graph.is_module_squashed(module)}
        for importer in covered(graph.modules, self.modules):
            for imported in graph.find_modules_directly_imported_by(importer):
                if not self._allows(imported, own):
                    yield importer, imported

    def _allows(self, imported: str, own: set[str]) -> bool:
        top = imported.split(".", maxsplit=1)[0]
        if top not in own:
            return self.outside == "everything" or top in sys.stdlib_module_names
        return any(Pattern(text).covers(imported) for text in self.may_import)


class OnlyIn(Rules):
    """The outside `package` is imported by nobody but `modules`."""

    package: Any = fields.StringField()
    modules: Any = fields.SetField(subfield=fields.StringField())

    def faults(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        if self.package not in graph.modules:
            return
        for importer in graph.find_modules_that_directly_import(self.package):
            if not any(Pattern(text).covers(importer) for text in self.modules):
                yield importer, self.package


class OnlyThrough(Rules):
    """Outside the package `source`, only `through` imports anything of the package `target`, and only `open_parts`."""

    source: Any = fields.StringField()
    target: Any = fields.StringField()
    through: Any = fields.SetField(subfield=fields.StringField(), required=False, default=set())
    open_parts: Any = fields.SetField(subfield=fields.StringField(), required=False, default=set())

    def faults(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        for importer in covered(graph.modules, {self.source}):
            for imported in graph.find_modules_directly_imported_by(importer):
                if Pattern(self.target).covers(imported) and not self._allows(importer, imported):
                    yield importer, imported

    def _allows(self, importer: str, imported: str) -> bool:
        may = any(Pattern(text).covers(importer) for text in self.through)
        is_open = any(Pattern(text).covers(imported) for text in self.open_parts)
        return may and is_open


class Apart(Rules):
    """In each of the `apps`, none of the `parts` imports another one, its own or another app's."""

    apps: Any = fields.SetField(subfield=fields.StringField())
    parts: Any = fields.SetField(subfield=fields.StringField())

    def faults(self, graph: ImportGraph) -> Iterator[tuple[str, str]]:
        edges = {f"{app}.{part}" for app in self.apps for part in self.parts}
        for edge in edges:
            # The API's shell is common ground: the APIs of the apps build on it.
            shell: set[str] = {"ergon_site.access.api"} if edge.endswith(".api") else set()
            others = edges - {edge} - shell
            for importer in covered(graph.modules, {edge}):
                for imported in covered(graph.find_modules_directly_imported_by(importer), others):
                    yield importer, imported


def covered(modules: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return [module for module in modules if any(Pattern(text).covers(module) for text in patterns)]

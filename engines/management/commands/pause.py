"""`manage.py pause PIPELINE`."""

from argparse import ArgumentParser
from typing import Any

from engines import pipelines
from engines.management.base import EngineCommand
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason


class Command(EngineCommand):
    help = "Pause a pipeline: no further transaction is started, running ones end. Transactions can still be submitted."
    change, changed = staticmethod(pipelines.pause), "paused"

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("pipeline", metavar="PIPELINE", help="the pipeline's name")
        add_reason(parser)

    def run(self, *, pipeline: str, reason: str, **_: Any) -> None:
        changed = self.change(pipeline, by=actor(), reason=reason)
        self.tell({"name": changed.name, "paused": changed.is_paused}, f"{self.changed} {changed.name}")

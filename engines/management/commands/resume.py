"""`manage.py resume PIPELINE`."""

from argparse import ArgumentParser
from typing import Any

from engines import pipelines
from engines.management.base import EngineCommand, actor
from ergon_site.access.cli.options import add_reason


class Command(EngineCommand):
    help = "Resume a paused pipeline."

    def add_options(self, parser: ArgumentParser) -> None:
        parser.add_argument("pipeline", metavar="PIPELINE", help="the pipeline's name")
        add_reason(parser)

    def run(self, *, pipeline: str, reason: str, **_: Any) -> None:
        resumed = pipelines.resume(pipeline, by=actor(), reason=reason)
        self.tell({"name": resumed.name, "paused": resumed.is_paused}, f"resumed {resumed.name}")

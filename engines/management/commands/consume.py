"""`manage.py consume`: run transactions until stopped."""

from typing import Any

from django.core.management.base import CommandParser

from engines.management.serving import ServingCommand
from ergon_site.access.cli.program import typed


class Command(ServingCommand):
    help = (
        "Run the transactions of inbound pipelines until stopped. On SIGTERM or Ctrl-C the process claims no more"
        " transactions, lets running ones end within the grace period, and gives the rest back. A second signal ends it"
        " at once."
    )
    direction = "inbound"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "pipelines",
            nargs="*",
            metavar="PIPELINE",
            help="the pipelines to run; every enabled inbound pipeline if none is named",
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        chosen = self.choose(options["pipelines"])
        if chosen:
            self.serve(chosen, options)
        else:
            self.stderr.write(
                f"There is no enabled inbound pipeline: create one with {typed('pipeline create NAME --task TASK')}."
            )

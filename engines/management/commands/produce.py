"""`manage.py produce`: send out what a pipeline is to produce."""

import os
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandParser

from engines.management.serving import ServingCommand


class Command(ServingCommand):
    help = "Produce the pending transactions of an outbound pipeline until stopped, or the transactions of a file."
    direction = "outbound"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pipeline", metavar="PIPELINE", help="the outbound pipeline's name")
        parser.add_argument(
            "--input",
            metavar="FILE",
            help="submit the JSON Lines of FILE ('-': standard input), produce them, then stop",
        )
        super().add_arguments(parser)

    def run(self, options: dict[str, Any]) -> None:
        chosen = self.choose([options["pipeline"]])
        if options["input"] is not None:
            with Path(os.devnull).open("w") as nowhere:
                call_command("submit", options["pipeline"], input=options["input"], stdout=nowhere)
            options["drain"] = True
        self.serve(chosen, options)

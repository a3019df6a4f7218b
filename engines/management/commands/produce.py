"""`manage.py produce`: send out what a pipeline is to produce."""

from typing import Any

from django.core.management.base import CommandParser

from engines.management.serving import ServingCommand


class Command(ServingCommand):
    help = "Produce the pending transactions of an outbound pipeline until stopped, or those of a file."
    direction = "outbound"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pipeline", metavar="PIPELINE", help="an outbound pipeline")
        parser.add_argument("--input", metavar="FILE", help="submit these JSON Lines first (- reads stdin), then drain")
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        self.serve(self.choose([options["pipeline"]]), options)

"""`manage.py consume`: run transactions until stopped."""

from typing import Any

from django.core.management.base import CommandParser

from engines.management.serving import ServingCommand


class Command(ServingCommand):
    help = (
        "Run the transactions of pipelines until stopped. SIGTERM or Ctrl-C: claim no more, let what runs end within"
        " the grace, give back the rest; a second one ends the process at once."
    )
    direction = "inbound"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help="none: every enabled inbound pipeline")
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        chosen = self.choose(options["pipelines"])
        if chosen:
            self.serve(chosen, options)
        else:
            self.stderr.write("There is no enabled inbound pipeline: make one with manage.py pipeline create.")

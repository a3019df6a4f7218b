"""`manage.py resume PIPELINE`."""

from engines import pipelines
from engines.management.commands import pause


class Command(pause.Command):
    help = "Resume a paused pipeline."
    change, changed = staticmethod(pipelines.resume), "resumed"

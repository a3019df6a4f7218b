"""`--metrics-port`, for commands that run until they are stopped."""

from argparse import ArgumentParser

from django.conf import settings
from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from ergon_site.access.cli.options import whole


def add_metrics_port(parser: ArgumentParser, *, default: int | None = None) -> None:
    text = "serve /metrics on this port of the loopback address"
    parser.add_argument("--metrics-port", type=whole(1, 65_535), default=default, metavar="PORT", help=text)


def serve_metrics(port: int | None) -> None:
    """Serve the instruments of this process, if a port is given for them."""
    if port is None:
        return
    try:
        import_string(settings.ERGON_METRICS_SERVER)(port)
    except OSError as error:
        msg = f"metrics cannot be served on port {port}: {error.strerror}"
        raise CommandError(msg) from None

"""Commands that call verbs: JSON or text, reasons, and errors in one line."""

import json
import os
import shutil
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import IO, Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InternalError, OperationalError, connection

from ergon_site.access import pending_migrations
from ergon_site.access.cli import tables
from ergon_site.access.core.texts import sentence

WRONG_USAGE = 2
LONGEST_ACTOR = 150
INTERRUPTED = 130


class VerbCommand(BaseCommand):
    """A command that calls a verb and tells what came of it.

    A command writes `add_options` and `run`. What `run` passes to `tell` is printed as one JSON document with `--json`,
    and as text for people without it.
    """

    # They look at the console's pages above all, and cost half of a short command's time.
    requires_system_checks = []

    # What its verbs refuse with.
    refusals: tuple[type[Exception], ...] = ()

    is_json = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        tell_errors_in_one_line(parser)
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        self.add_options(parser)

    def add_options(self, parser: ArgumentParser) -> None: ...

    def handle(self, *_arguments: Any, **options: Any) -> None:
        self.is_json = options.pop("json")
        if "reason" in options:
            options["reason"] = options["reason"] or ""
        with told_in_one_line(*self.refusals, hint=self.hint_for):
            try:
                self.run(**options)
                self.stdout.flush()
            except BrokenPipeError:
                # The reader of standard output has gone: close it quietly.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(1)

    def run(self, *arguments: Any, **options: Any) -> None:
        raise NotImplementedError

    def hint_for(self, error: Exception) -> str:
        """A command to type instead, shown after a refusal; empty if there is nothing to suggest."""
        return ""

    def ask_first(self, what: str, *, yes: bool) -> None:
        """Ask before something is destroyed; where nobody can be asked, `--yes` is needed."""
        if yes:
            return
        if not sys.stdin.isatty():
            msg = f"{what}: repeat it with --yes"
            raise CommandError(msg, returncode=os.EX_USAGE)
        # Not as the prompt of `input`, which standard output gets.
        self.stderr.write(f"{tables.printable(what)}.\nType 'yes' to go on: ", str, "")
        self.stderr.flush()
        if sys.stdin.readline().strip() != "yes":  # nothing at all where the terminal was closed, or with Ctrl-D
            msg = "nothing was done"
            raise CommandError(msg)

    def tell(self, document: Any, text: str | Iterable[str]) -> None:
        """Print the document, or the text where no JSON was asked for."""
        if self.is_json:
            self.stdout.write(as_json(document))
            return
        for line in [text] if isinstance(text, str) else text:
            self.stdout.write(line)

    def table(self, headings: list[str], rows: Iterable[Iterable[Any]]) -> list[str]:
        # What goes to a file or a pipe is never truncated.
        width = shutil.get_terminal_size().columns if self.stdout.isatty() else None
        lines = tables.table(headings, rows, width=width)
        return lines if len(lines) > 1 else ["none"]


class VerbsCommand(VerbCommand):
    """A command with several verbs, each a method of the same name: `pipeline create`, `dead_letters replay-all`."""

    default_verb: str | None = None

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        self._verbs = parser.add_subparsers(
            dest="verb", metavar="VERB", required=self.default_verb is None, title="verbs"
        )
        self.add_verbs()

    def add_verbs(self) -> None:
        raise NotImplementedError

    def add_verb(self, name: str, *, help: str) -> ArgumentParser:  # noqa: A002 (argparse calls it so)
        parser: ArgumentParser = self._verbs.add_parser(name, help=help, description=sentence(help))
        tell_errors_in_one_line(parser)
        # Without a default of its own, or it would take back the option where that stands before the verb.
        parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print JSON, for programs")
        return parser

    def run(self, *, verb: str | None, **options: Any) -> None:
        getattr(self, (verb or str(self.default_verb)).replace("-", "_"))(**options)


def tell_errors_in_one_line(parser: ArgumentParser) -> None:
    """Also below the `manage.py` of another project, whose other commands keep theirs."""
    parser.error = partial(refuse_usage, parser)  # type: ignore[method-assign, arg-type]


def refuse_usage(parser: CommandParser, message: str) -> NoReturn:
    """Refuse wrong usage in one line, without the list of options."""
    if not parser.called_from_command_line:
        text = f"Error: {message}"
        raise CommandError(text)
    parser.exit(WRONG_USAGE, f"{parser.prog}: {message}; {parser.prog} --help lists the options\n")


@contextmanager
def told_in_one_line(*refusals: type[Exception], hint: Callable[[Exception], str] = lambda _: "") -> Iterator[None]:
    """Refusals of verbs become errors of the command, which are printed without a traceback."""
    try:
        yield
    except refusals as error:
        text = ": ".join(filter(None, [one_line(error), hint(error)]))
        raise CommandError(text, returncode=getattr(error, "exit_code", 1)) from error
    except UnicodeEncodeError:
        msg = "an argument holds bytes that are not UTF-8"
        raise CommandError(msg) from None
    except DatabaseError as error:
        if connection.connection is None:
            raise
        text = pending_migrations.hint()
        if not text and isinstance(error, OperationalError | InternalError):  # read-only, full, locked, shutting down
            text = f"the database refuses: {tables.printable(_error_text(error).strip().splitlines()[0])}"
        if not text:
            raise
        raise CommandError(text, returncode=os.EX_UNAVAILABLE) from error
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def one_line(error: BaseException) -> str:
    return tables.printable(" ".join(_error_text(error).split()))


def actor() -> str:
    """The system user behind the command, for the audit log."""
    try:
        name = getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        name = str(os.getuid())
    return f"command:{name}"[:LONGEST_ACTOR]


def as_json(value: Any) -> str:
    return json.dumps(value, default=lambda one: one.isoformat() if isinstance(one, datetime) else str(one))


def pretty(value: Any) -> list[str]:
    """A JSON value for people, safe for their terminal."""
    return [tables.printable(line) for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines()]


def moment(time: datetime | None) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if time else ""


def _error_text(error: BaseException) -> str:
    return str(error) or type(error).__name__


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file that a command reads, or what is piped in; one that cannot be read is told in one line."""
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise CommandError(msg) from None


def content_of(path: str, *, most: int) -> bytes:
    """The bytes of a file or of standard input ('-'), which must not be more than this."""
    with opened(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        msg = f"{path} has more than {most:,} bytes"
        raise CommandError(msg)
    return content

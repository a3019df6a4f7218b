"""`manage.py bulk VERB KIND [ID …]`: act on many rows at once, by a bulk operation."""

from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import asdict
from typing import Any

from engines.dead_letters import bulk
from engines.dead_letters.bulk import DryRun, Selection, Terms
from engines.management.base import EngineCommand
from engines.management.operations import tell_begun
from ergon_site.access.bulk_kinds import bulk_kinds
from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import add_reason, add_yes, whole

FINAL = {"cancel", "discard", "sweep"}


def word(value: str) -> tuple[str, str]:
    name, sign, text = value.partition("=")
    if not sign:
        msg = f"must look like state=failed, not {value!r}"
        raise ArgumentTypeError(msg)
    return name, text


class Command(EngineCommand):
    help = (
        "Act on many rows at once, on those that are named or on all that a filter finds: replay, discard, cancel, "
        "pause, resume and so on. Starts a bulk operation, which maintain carries out."
    )

    def add_options(self, parser: ArgumentParser) -> None:
        kinds = {f"{name.replace('_', '-')}s": name for name in bulk_kinds()}
        verbs = sorted({verb for kind in bulk_kinds().values() for verb in bulk.verbs_of(kind)} - {bulk.EXPORT})
        parser.add_argument("verb", metavar="VERB", choices=verbs, help=f"one of {', '.join(verbs)}")
        parser.add_argument("kind", metavar="KIND", choices=kinds, help=f"one of {', '.join(kinds)}")
        parser.add_argument(
            "ids",
            metavar="ID",
            nargs="*",
            help="ids of transactions, names of pipelines and schedules, numbers of others",
        )
        parser.add_argument(
            "--where",
            metavar="NAME=VALUE",
            action="append",
            type=word,
            help="instead of ids: all that this filter of the console's list finds; may be repeated",
        )
        parser.add_argument(
            "--canary",
            type=whole(0, bulk.MOST_FIRST),
            default=1,
            metavar="N",
            help="replay N first, and the rest only if they succeed; 1 if not given",
        )
        parser.add_argument("--rate", type=float, metavar="N", help="rows per second; 10 for replays if not given")
        parser.add_argument(
            "--cap",
            type=whole(1, bulk.MOST),
            default=bulk.MOST,
            metavar="N",
            help=f"at most N rows; {bulk.MOST:,} if not given",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count what would be done, and what skipped")
        parser.add_argument("--wait", action="store_true", help="wait until the bulk operation has ended")
        add_reason(parser, required=False)
        add_yes(parser)

    def run(self, *, verb: str, kind: str, ids: list[str], where: list[tuple[str, str]] | None, **options: Any) -> None:
        name = kind.removesuffix("s").replace("-", "_")
        if where and ids:
            msg = "name ids or a filter, not both"
            raise bulk.BulkError(msg)
        selection = Selection(kind=name, keys=bulk.keys_of(name, ids), where=dict(where) if where else None)
        dry = bulk.dry_run(verb, selection)
        if options["dry_run"]:
            self.tell(asdict(dry), _lines(verb, dry))
            return
        if not options["reason"]:
            msg = "a bulk operation needs a --reason"
            raise bulk.BulkError(msg)
        if verb in FINAL:
            self.ask_first(f"this is the {verb} of {min(dry.matched, options['cap']):,}", yes=options["yes"])
        usual = Terms().rate if verb == "replay" else bulk.AT_ONCE
        rate = usual if options["rate"] is None else options["rate"]
        terms = Terms(canary=options["canary"], rate=rate, cap=options["cap"])
        begun = bulk.begin_selected(verb, selection, terms, by=actor(), reason=options["reason"])
        tell_begun(self, begun, wait=options["wait"])


def _lines(verb: str, dry: DryRun) -> list[str]:
    more = "+" if dry.is_capped else ""
    first = f"{dry.matched:,}{more} match; of the {dry.examined:,} looked at, {verb} would be done to {dry.would:,}"
    return [first, *(f"{count:,} skipped: {reason}" for reason, count in dry.skipped.items())]

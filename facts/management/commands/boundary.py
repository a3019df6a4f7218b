"""`manage.py boundary create|list|open|close|skip|limit|retire`."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from ergon_site.access.cli.commands import actor
from ergon_site.access.cli.options import MOST_DAYS, add_reason, add_yes, whole
from facts import ledger, provisioning, retiring
from facts.ledger import boundaries, remembering
from facts.management.base import VerbsCommand, add_pair
from facts.models import Boundary
from facts.provisioning import LARGEST, Allowance

MOST = 10**12 - 1
HELD = {"row_ceiling": "facts", "byte_ceiling": "bytes"}


class Command(VerbsCommand):
    help = (
        "Create, list and retire boundaries between two zones; open and close their gates; skip what raised an alarm;"
        " set ceilings and retention."
    )

    def add_verbs(self) -> None:
        create = self.add_verb("create", help="create a boundary from one zone to another")
        add_pair(create)
        create.add_argument(
            "--source",
            dest="source_url",
            metavar="URL",
            default="",
            help="a peer to pull the facts from, one of ERGON_PEERS; this database if not given",
        )
        for option, name, what in (
            ("--token", "source_token_file", "the peer's token, by the name of its file in ERGON_PEER_TOKENS"),
            ("--consumer", "source_consumer", "the consumer at the peer; the token's only one if not given"),
        ):
            create.add_argument(option, dest=name, metavar="NAME", default="", help=f"with --source: {what}")
        _add_limits(create, is_new=True)
        create.add_argument(
            "--with-artifacts",
            action="store_true",
            help="with --source: pull the artifacts that a fact refers to before the fact itself",
        )
        add_reason(create, required=False)
        self.add_verb("list", help="list boundaries with gate, buffers and backlog")
        for verb, what in {
            "open": "open the gate and clear the alarm: facts are handed over again",
            "close": "close the gate: no facts are handed over until it is opened; both sides keep working",
            "skip": "skip the facts that raised an alarm, with a reason",
            "retire": "end a boundary: nothing more is appended or handed over, its facts stay readable",
            "limit": "change ceilings and retention; options that are not given stay as they are",
        }.items():
            parser = self.add_verb(verb, help=what)
            add_pair(parser)
            if verb == "skip":
                offset: Any = {"type": whole(0, MOST), "metavar": "OFFSET"}
                parser.add_argument("offset", help="the offset that the alarm names", **offset)
                parser.add_argument("--through", help="the last one, if the alarm is about several", **offset)
            if verb == "retire":
                add_yes(parser)
            if verb == "limit":
                _add_limits(parser, is_new=False)
            add_reason(parser)

    def create(self, *, from_zone: str, to_zone: str, reason: str, **options: Any) -> None:
        of_a_peer = ("source_token_file", "source_consumer", "with_artifacts")
        plan = {name: options[name] for name in ("source_url", *of_a_peer, *HELD)}
        plan |= {name: options[name] for name in ("keep_days", "dedupe_days") if options[name]}
        if not plan["source_url"] and any(plan[name] for name in of_a_peer):
            msg = "--token, --consumer and --with-artifacts are for a peer: name it with --source"
            raise CommandError(msg)
        made = provisioning.create_boundary(from_zone, to_zone, by=actor(), reason=reason, **plan)
        source = f", pulled from {made.source_url}" if made.is_remote else ""
        self.tell(_as_json(made), f"created the boundary {made}{source}")

    def list(self, **_: Any) -> None:
        found = Boundary.objects.select_related("from_zone", "to_zone").prefetch_related("consumers")
        rows = [_as_json(one) for one in found]
        headings = ["from", "to", "gate", "first", "next", "frontier", "backlog", "bytes", "source", "state"]
        self.tell(rows, self.table(headings, map(_row, rows)))

    def open(self, *, from_zone: str, to_zone: str, reason: str, **_: Any) -> None:
        opened = provisioning.open_gate(from_zone, to_zone, by=actor(), reason=reason)
        self.tell(_as_json(opened), f"opened {from_zone} → {to_zone}; its gate is {opened.gate}")

    def close(self, *, from_zone: str, to_zone: str, reason: str, **_: Any) -> None:
        closed = provisioning.close_gate(from_zone, to_zone, by=actor(), reason=reason)
        self.tell(_as_json(closed), f"closed {from_zone} → {to_zone}")

    def skip(self, *, from_zone: str, to_zone: str, offset: int, through: int | None, reason: str, **_: Any) -> None:
        skipped = ledger.skip(from_zone, to_zone, offset, through=through, by=actor(), reason=reason)
        what = f"offset {offset:,}" if through in {None, offset} else f"offsets {offset:,} to {through:,}"
        self.tell(_as_json(skipped), f"skipped {what} of {from_zone} → {to_zone}; the alarm is cleared")

    def retire(self, *, from_zone: str, to_zone: str, yes: bool, reason: str, **_: Any) -> None:
        self.ask_first(f"this ends the boundary {from_zone} → {to_zone}", yes=yes)
        retired = retiring.retire_boundary(from_zone, to_zone, by=actor(), reason=reason)
        self.tell(_as_json(retired), f"retired {from_zone} → {to_zone}; its facts stay readable")

    def limit(self, *, from_zone: str, to_zone: str, reason: str, **options: Any) -> None:
        boundary = boundaries.find(from_zone, to_zone)
        given = {name: options[name] for name in LARGEST if options[name] is not None}
        limits = {name: getattr(boundary, name) for name in LARGEST} | given
        allowance = Allowance(**limits | {name: limits[name] or None for name in (*HELD, "dedupe_days")})
        limited = provisioning.limit(from_zone, to_zone, allowance, by=actor(), reason=reason)
        told = _as_json(limited)
        held = ", ".join(f"{told[name]:,} {what}" for name, what in HELD.items() if told[name]) or "no limit"
        days = remembering.dedupe_days(limited)
        kept = f"facts are kept for {limited.keep_days} days, message ids are remembered for {days} more"
        self.tell(told, f"{from_zone} → {to_zone}: {held}; {kept}")


def _add_limits(parser: ArgumentParser, *, is_new: bool) -> None:
    unlimited, default = ("", " (default 30)") if is_new else ("; 0 for no limit", "")
    for option, what in {"--row-ceiling": "facts", "--byte-ceiling": "bytes"}.items():
        least = 1 if is_new else 0
        parser.add_argument(option, type=whole(least, MOST), metavar="N", help=f"hold at most N {what}{unlimited}")
    parser.add_argument(
        "--keep-days",
        type=whole(1, MOST_DAYS),
        metavar="N",
        help=f"days after which facts that every consumer has confirmed may be removed{default}",
    )
    parser.add_argument(
        "--dedupe-days",
        type=whole(0, MOST_DAYS),
        metavar="N",
        help="days that message ids are remembered after truncation; 0 for 30 days more than facts are kept",
    )


def _as_json(boundary: Boundary) -> dict[str, Any]:
    names = ("gate", "gate_by", "gate_reason", "alarm", "alarm_offset", "alarm_last", "failures", "first_offset")
    more = ("next_offset", "frontier", "stored_bytes", *LARGEST, "heard_at", "handed_over_at", "held_by", "retired_at")
    return {
        "from_zone": boundary.from_zone.name,
        "to_zone": boundary.to_zone.name,
        **{name: getattr(boundary, name) for name in (*names, *more)},
        "backlog": provisioning.unconfirmed(boundary),
        "source_url": boundary.source_url or None,
        "source_consumer": boundary.source_consumer or None,
        "source_head": boundary.source_head,
        "with_artifacts": bool(boundary.with_artifacts),
    }


def _row(told: dict[str, Any]) -> list[Any]:
    names = ("from_zone", "to_zone", "gate", "first_offset", "next_offset", "frontier", "backlog", "stored_bytes")
    state = f"{told['failures']} failures: {told['gate_reason']}" if told["failures"] else "well"
    if told["retired_at"]:
        state = "retired"
    elif told["alarm"]:
        state = f"ALARM: {told['alarm']}"
    elif told["gate_by"]:
        state = f"closed by {told['gate_by']}: {told['gate_reason']}"
    return [*(told[name] for name in names), told["source_url"] or "this database", state]

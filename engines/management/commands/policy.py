"""`manage.py policy show|set|list|versions|rehearse|activate`."""

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandError
from django.db.models import Count

from engines import policies, rehearsals
from engines.core import rehearsal_report
from engines.core.rehearsal import Rehearsal
from engines.management.base import VerbsCommand, json_file
from engines.models import Policy, PolicyVersion
from ergon_site.access.cli import policies as shown
from ergon_site.access.cli.commands import actor, moment, pretty
from ergon_site.access.cli.options import add_reason, whole
from ergon_site.access.cli.tables import printable
from ergon_site.access.core.differences import changes


class Command(VerbsCommand):
    help = "List, show and change policies: retries, time limits, concurrency. A change makes a new version."

    def add_verbs(self) -> None:
        self.add_verb("list", help="list policies with their active versions")
        for name, what in {"show": "print a policy as JSON", "versions": "list the versions of a policy"}.items():
            self.add_verb(name, help=what).add_argument("name", metavar="NAME", help="the policy's name")
        put = self.add_verb(
            "set", help="write a new version and activate it; fields that are left out take their defaults"
        )
        add = put.add_argument
        add("name", metavar="NAME", help="the policy's name; a new one needs --kind")
        add("--kind", choices=["consumer", "producer"], help="the kind of a new policy")
        add("--file", default="-", metavar="F", help="the policy's JSON; '-', the default, is standard input")
        add_reason(put)
        rehearse = self.add_verb("rehearse", help="what a policy would have changed in the last day; nothing is saved")
        rehearse.add_argument("name", metavar="NAME", help="the policy's name")
        rehearse.add_argument(
            "--file", default="-", metavar="F", help="the policy's JSON; '-', the default, is standard input"
        )
        activate = self.add_verb("activate", help="activate an earlier version")
        activate.add_argument("name", metavar="NAME", help="the policy's name")
        activate.add_argument("number", metavar="NUMBER", type=whole(1, 2**31 - 1), help="the version's number")
        add_reason(activate)

    def list(self, **_: Any) -> None:
        rows: Any = Policy.objects.select_related("active").annotate(governed=Count("pipelines"))
        headings = ["name", "kind", "version", "pipelines", "since (UTC)", "by", "reason"]
        told = []
        for policy in rows:
            version = shown.version(policy.active)
            counts = {"version": version["number"], "pipelines": policy.governed}
            kept = {name: version[name] for name in ("created_at", "author", "reason")}
            told.append({"name": policy.name, "kind": policy.kind, **counts, **kept})
        table = ([moment(value) if name == "created_at" else value for name, value in one.items()] for one in told)
        self.tell(told, self.table(headings, table))

    def show(self, *, name: str, **_: Any) -> None:
        policy = policies.find(name)
        body = policies.in_force(policy.pk).policy.to_dict()
        if self.stdout.isatty() and policy.active and not self.is_json:
            # Beside the document, so that it can be saved, changed and set again.
            self.stderr.write(printable(f"{policy.active}, a {policy.kind} policy: {policy.active.reason}"), str)
        self.tell(body, pretty(body))

    def set(self, *, name: str, kind: str | None, file: str, reason: str, **_: Any) -> None:
        try:
            version = policies.write(name, json_file(file), by=actor(), reason=reason, kind=kind)
        except policies.PolicyUnknownError as unknown:
            msg = f"{unknown}: to make it, add --kind consumer or --kind producer"
            raise CommandError(msg) from unknown
        self._tell_version(version, version.changes)

    def rehearse(self, *, name: str, file: str, **_: Any) -> None:
        result = rehearsals.rehearse(policies.find(name), json_file(file))
        told = Rehearsal.from_dict(result["total"])
        headings = ["", "recorded", "with this policy", "change"]
        rows = [[one.name, one.recorded, one.rehearsed, one.change] for one in rehearsal_report.figures(told)]
        lines = [rehearsal_report.size(result), *self.table(headings, rows), *rehearsal_report.notes(result)]
        self.tell(result, lines)

    def versions(self, *, name: str, **_: Any) -> None:
        told, headings, rows = shown.versions(policies.find(name))
        self.tell(told, self.table(headings, rows))

    def activate(self, *, name: str, number: int, reason: str, **_: Any) -> None:
        before = policies.in_force(policies.find(name).pk).policy
        version = policies.activate(name, number, by=actor(), reason=reason)
        self._tell_version(version, changes(before.to_dict(), policies.of_version(version.pk).to_dict()))

    def _tell_version(self, version: PolicyVersion, changed: Sequence[dict[str, Any]]) -> None:
        document = {"name": version.policy.name, "kind": version.policy.kind, **shown.version(version)}
        self.tell(document | {"changes": changed}, shown.change_lines(version, changed))

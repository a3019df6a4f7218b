"""`manage.py provider_policy list|show|set|versions|activate`."""

from collections.abc import Sequence
from typing import Any

from ergon_site.access.cli import policies as shown
from ergon_site.access.cli.commands import actor, moment, pretty
from ergon_site.access.cli.options import add_reason, whole
from ergon_site.access.cli.tables import printable
from ergon_site.access.core.differences import changes
from providers import active_policy, policies
from providers.management.base import VerbsCommand, add_capability, add_create, check_known, json_file
from providers.models import ProviderPolicyRow, ProviderPolicyVersion


class Command(VerbsCommand):
    help = (
        "List, show and change the policies of providers, which override the attributes of their classes. A change "
        "makes a new version; calls follow it at once, in other processes within a second."
    )

    def add_verbs(self) -> None:
        self.add_verb("list", help="list policies with their active versions")
        for name, what in {"show": "print a policy as JSON", "versions": "list the versions of a policy"}.items():
            add_capability(self.add_verb(name, help=what))
        put = add_create(
            add_capability(
                self.add_verb("set", help="write a new version and activate it; the first one creates the policy")
            )
        )
        put.add_argument(
            "--file", default="-", metavar="F", help="the policy's JSON; '-', the default, is standard input"
        )
        add_reason(put)
        activate = add_capability(self.add_verb("activate", help="activate an earlier version"))
        activate.add_argument("number", metavar="NUMBER", type=whole(1, 2**31 - 1), help="the version's number")
        add_reason(activate)

    def list(self, **_: Any) -> None:
        told: Any = []
        for row in ProviderPolicyRow.objects.select_related("active"):
            version = shown.version(row.active) if row.active else {}
            kept = {name: version.get(name) for name in ("created_at", "author", "reason")}
            named = {"provider_name": row.provider_name, "capability": row.capability}
            told.append({**named, "version": version.get("number"), **kept})
        headings = ["provider", "capability", "version", "since (UTC)", "by", "reason"]
        table = ([moment(value) if name == "created_at" else value for name, value in one.items()] for one in told)
        self.tell(told, self.table(headings, table))

    def show(self, *, provider_name: str, capability: str, **_: Any) -> None:
        row = active_policy.POLICIES.find(provider_name, capability)
        body = row.in_force.policy.to_dict()
        if self.stdout.isatty() and row.active and not self.is_json:
            # Beside the document, so that it can be saved, changed and set again.
            self.stderr.write(printable(f"{row.active}: {row.active.reason}"), str)
        self.tell(body, pretty(body))

    def set(self, *, provider_name: str, capability: str, create: bool, file: str, reason: str, **_: Any) -> None:
        check_known(provider_name, capability, create=create)
        version = policies.write(provider_name, capability, body=json_file(file), by=actor(), reason=reason)
        self._tell_version(version, version.changes)

    def versions(self, *, provider_name: str, capability: str, **_: Any) -> None:
        told, headings, rows = shown.versions(active_policy.POLICIES.find(provider_name, capability))
        self.tell(told, self.table(headings, rows))

    def activate(self, *, provider_name: str, capability: str, number: int, reason: str, **_: Any) -> None:
        before = active_policy.POLICIES.find(provider_name, capability).in_force.policy.to_dict()
        version = policies.activate(provider_name, capability, number=number, by=actor(), reason=reason)
        self._tell_version(version, changes(before, version.policy.in_force.policy.to_dict()))

    def _tell_version(self, version: ProviderPolicyVersion, changed: Sequence[dict[str, Any]]) -> None:
        key = {"provider_name": version.policy.provider_name, "capability": version.policy.capability}
        document = {**key, **shown.version(version), "changes": changed}
        self.tell(document, shown.change_lines(version, changed))

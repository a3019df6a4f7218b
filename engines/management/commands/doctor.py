"""`manage.py doctor`: is everything well, and if not, what is to be done?"""

import sys
from dataclasses import asdict
from typing import Any

from engines.management.base import EngineCommand
from engines.reads import doctor
from engines.reads.doctor import Level
from ergon_site.access.cli.tables import printable

WIDTH = max(map(len, Level))


class Command(EngineCommand):
    help = (
        "Check database, migrations, clock, statistics, broker, disk, tasks, pipelines, policies, executors, workers"
        " and maintenance. Prints each problem with what to do about it. Exit code 1 if there is a problem."
    )

    def run(self, **_: Any) -> None:
        findings = []
        styles = {Level.OK: self.style.SUCCESS, Level.WARNING: self.style.WARNING, Level.PROBLEM: self.style.ERROR}
        for finding in doctor.examine():
            findings.append(finding)
            if self.is_json:
                continue
            level = styles[finding.level](finding.level.ljust(WIDTH))
            self.stdout.write(f"{level}  {finding.check}: {printable(finding.text)}")
            if finding.hint:
                self.stdout.write(f"{' ' * WIDTH}  → {printable(finding.hint)}")
            self.stdout.flush()
        problems = sum(finding.level is Level.PROBLEM for finding in findings)
        told = {"ok": not problems, "findings": [asdict(finding) for finding in findings]}
        self.tell(told, f"{problems or 'no'} {'problem' if problems == 1 else 'problems'} found")
        if problems:
            self.stdout.flush()
            sys.exit(1)

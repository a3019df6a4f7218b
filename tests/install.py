"""`python -m tests.install`: get what only the system's packages give, where that is possible."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ergon_site.embedded import RABBITMQ

# Debian's, for what the oldest supported server does differently.
OLDEST_POSTGRES = "/usr/lib/postgresql/15/bin/postgres"
PACKAGES = {
    "chromium-headless-shell": ["chromium-headless-shell", "fonts-dejavu-core"],
    RABBITMQ: ["rabbitmq-server"],
    "faketime": ["faketime"],
    "ip": ["iproute2"],
    "jq": ["jq"],
    "nginx": ["nginx-light"],
    "pgbouncer": ["pgbouncer"],
    OLDEST_POSTGRES: ["postgresql-15"],
}
POLICY = Path("/usr/sbin/policy-rc.d")
NO_SERVICES = "#!/bin/sh\nexit 101\n"


def main() -> None:
    groups = [packages for program, packages in PACKAGES.items() if not shutil.which(program)]
    missing = [package for packages in groups for package in packages]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.stderr.write(f"Tests that need {', '.join(missing)} fail or are skipped: install them to run all.\n")
        return
    print(f"Installing {', '.join(missing)} …", flush=True)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    with no_services():
        subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
        if subprocess.run([*install, *missing], check=False, **quiet).returncode:
            for packages in groups:  # one that this system does not have must not keep it from the others
                subprocess.run([*install, *packages], check=False, **quiet)


@contextmanager
def no_services() -> Iterator[None]:
    """A server is installed for its program: Debian must not start it as a service. A policy that is there stands."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(NO_SERVICES)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


if __name__ == "__main__":
    main()

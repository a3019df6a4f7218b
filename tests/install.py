"""`python -m tests.install`: get what only the system's packages give, where that is possible."""

import os
import shutil
import subprocess
import sys
from typing import Any

PACKAGES = {"chromium": ["chromium", "fonts-dejavu-core"]}


def main() -> None:
    missing = [package for program, packages in PACKAGES.items() if not shutil.which(program) for package in packages]
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.stderr.write(f"Tests that need {', '.join(missing)} will be skipped: install them to run all.\n")
        return
    print(f"Installing {', '.join(missing)} …", flush=True)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=False, **quiet)


if __name__ == "__main__":
    main()

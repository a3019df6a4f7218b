#!/usr/bin/env python
"""Ergon's command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")
    from ergon_site.command_line import run

    run(sys.argv)


if __name__ == "__main__":
    main()

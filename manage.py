#!/usr/bin/env python
"""Ergon's command line."""

import gc
import os
import sys


def main() -> None:
    gc.disable()  # until everything is loaded: of that nothing is garbage, and to look takes a seventh of a start
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")
    from ergon_site.command_line import run

    run(sys.argv)


if __name__ == "__main__":
    main()

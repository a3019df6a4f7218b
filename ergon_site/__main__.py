"""`manage.py` without a clone: `ergon migrate`, `ergon consume`, `ergon demo`."""

import gc
import os
import sys


def main() -> None:
    gc.disable()  # until everything is loaded: of that nothing is garbage, and to look takes a seventh of a start
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ergon_site.settings")
    if sys.argv[1:2] == ["demo"]:
        from ergon_site.demo.__main__ import main as demonstrate

        gc.enable()
        demonstrate(sys.argv[2:])
        return
    from ergon_site.command_line import run

    run(sys.argv)


if __name__ == "__main__":
    main()

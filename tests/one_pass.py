"""`python -m tests.one_pass ARGUMENTS`: pytest for one pass of a run, in a process that has Ergon loaded."""

import sys

import pytest

from tests import warm

# Libraries that bring a plugin and are loaded already tell less when an assert of theirs fails.
ALLOWED = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]


def main() -> int:
    warm.leave_copy()
    # What pytest loads by itself tells in its asserts what was compared.
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    return pytest.main([*ALLOWED, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

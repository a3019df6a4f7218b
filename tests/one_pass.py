"""`python -m tests.one_pass ARGUMENTS`: pytest for one pass of a run, in a process that has Ergon loaded."""

import gc
import sys

import pytest

from tests import warm

# Libraries that bring a plugin and are loaded already tell less when an assert of theirs fails.
ALLOWED = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
# How seldom to look for what refers to itself: tests leave little of that, and there is much to look through.
SELDOM = (20_000, 20, 20)


def main() -> int:
    warm.leave_copy()
    gc.set_threshold(*SELDOM)
    # What pytest loads by itself tells in its asserts what was compared.
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    return pytest.main([*ALLOWED, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())

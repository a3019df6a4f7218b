"""Tracebacks as an author reads them: the frames of libraries are folded."""

import pytest
from hypothesis import given, strategies as st

from engines.core.tracebacks import Part, fold

HEAD = "Traceback (most recent call last):"
ENGINE = '  File "/srv/ergon/engines/drivers/threads.py", line 10, in run\n    return step()\n           ^^^^^^'
LIBRARY = '  File "/srv/.venv/lib/python3.12/site-packages/httpx/_client.py", line 5, in get\n    raise Gone'
AUTHOR = '  File "/srv/shop/tasks.py", line 3, in process\n    call()\n  [Previous line repeated 9 more times]'
ROOTS = ["/srv/ergon/engines/"]
ENDS = "httpx.Gone: 410"
CHAIN = "\nThe above exception was the direct cause of the following exception:\n"


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ([HEAD, AUTHOR, ENDS], [Part(f"{HEAD}\n{AUTHOR}\n{ENDS}")]),
        (
            [HEAD, ENGINE, ENGINE, AUTHOR, LIBRARY, ENDS],
            [Part(HEAD), Part(f"{ENGINE}\n{ENGINE}", 2), Part(AUTHOR), Part(LIBRARY, 1), Part(ENDS)],
        ),
        # Where no frame is the author's, the last one tells where it was.
        ([HEAD, ENGINE, LIBRARY, ENDS], [Part(HEAD), Part(ENGINE, 1), Part(f"{LIBRARY}\n{ENDS}")]),
        (
            [HEAD, ENGINE, AUTHOR, "A", CHAIN, HEAD, ENGINE, "B"],
            [Part(HEAD), Part(ENGINE, 1), Part(f"{AUTHOR}\nA\n{CHAIN}\n{HEAD}\n{ENGINE}\nB")],
        ),
        # The text may be cut anywhere, and come from another language.
        ([ENGINE, AUTHOR], [Part(ENGINE, 1), Part(AUTHOR)]),
        ([ENGINE], [Part(ENGINE)]),
        (
            ["panic: no", "goroutine 1 [running]:", "\tmain.go:3"],
            [Part("panic: no\ngoroutine 1 [running]:\n\tmain.go:3")],
        ),
        ([""], [Part("")]),
    ],
)
def test_frames_of_libraries_and_of_the_engine_are_folded(lines: list[str], parts: list[Part]) -> None:
    assert fold("\n".join(lines), ROOTS) == parts


@given(st.lists(st.sampled_from([HEAD, ENGINE, LIBRARY, AUTHOR, ENDS, CHAIN, "", "    x"])), st.text())
def test_no_line_is_lost_and_something_is_always_shown(pieces: list[str], text: str) -> None:
    whole = "\n".join([*pieces, text]).rstrip()
    parts = fold(whole, ROOTS)
    assert "\n".join(part.text for part in parts) == whole
    assert not all(part.frames for part in parts)

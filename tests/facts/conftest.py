"""What tests of the boundary may ask for."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.facts import bytes_of
from tests.processes import Site, serve


@pytest.fixture
def _empty_storage() -> Iterator[None]:
    """No bytes of other tests, and none left for them."""
    shutil.rmtree(bytes_of.folder(), ignore_errors=True)
    yield
    shutil.rmtree(bytes_of.folder(), ignore_errors=True)


@pytest.fixture
def serve_with(transactional_db: None) -> Iterator[Callable[..., Site]]:
    """Starts a web server with settings of its own."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(serve(**changes))

"""What tests of the boundary may ask for."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.facts import upload_bytes
from tests.facts.drafts import make_boundary
from tests.facts.peers import Script, keep_token, peer
from tests.processes import Site, serve


@pytest.fixture
def _empty_storage() -> Iterator[None]:
    """No bytes of other tests, and none left for them."""
    shutil.rmtree(upload_bytes.folder(), ignore_errors=True)
    yield
    shutil.rmtree(upload_bytes.folder(), ignore_errors=True)


@pytest.fixture
def serve_with(transactional_db: None) -> Iterator[Callable[..., Site]]:
    """Starts a web server with settings of its own."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(serve(**changes))


@pytest.fixture
def script(transactional_db: None) -> Iterator[Script]:
    """A peer, and a boundary here that is pulled from it."""
    made = Script()
    with peer(made) as url:
        make_boundary(source_url=url, source_token_file=keep_token())
        yield made

"""What tests of the boundary may ask for."""

import shutil
from collections.abc import Iterator

import pytest

from tests.facts import bytes_of


@pytest.fixture
def _empty_storage() -> Iterator[None]:
    """No bytes of other tests, and none left for them."""
    shutil.rmtree(bytes_of.folder(), ignore_errors=True)
    yield
    shutil.rmtree(bytes_of.folder(), ignore_errors=True)

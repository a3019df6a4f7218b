import pytest

from tests.conformance.harness import ENGINES, Engine


@pytest.fixture(params=ENGINES, ids=str)
def engine(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    return chosen


@pytest.fixture(params=[one for one in ENGINES if one.is_consumer], ids=str)
def consumer(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    return chosen


@pytest.fixture(params=[one for one in ENGINES if not one.is_consumer], ids=str)
def producer(request: pytest.FixtureRequest) -> Engine:
    chosen: Engine = request.param
    return chosen

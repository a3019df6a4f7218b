"""Tasks and services are found by name, once, and what cannot be found is named."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import conf
from engines.tasks import discovery, registry
from engines.tasks.discovery import DiscoveryError
from engines.tasks.registry import Task

pytestmark = pytest.mark.once

Module = Callable[..., None]


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    """Settings and what was found are remembered for a process: not from one test to the next."""
    yield
    conf.settings.cache_clear()
    discovery.forget()


@pytest.fixture
def given(settings: Any) -> Callable[..., None]:
    def give(**changes: Any) -> None:
        for name, value in changes.items():
            setattr(settings, name, value)
        conf.settings.cache_clear()
        discovery.forget()

    return give


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """Writes a module that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(path: str, *lines: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))

    return write


def test_tasks_are_found_in_the_modules_that_the_settings_name(given: Any, module: Module) -> None:
    module("shop_tasks.py", "import engines", "@engines.task('shop.sell')", "class Sell(engines.ConsumerTask): ...")
    given(ERGON_TASKS=("shop_tasks",))
    discovery.discover()
    assert registry.tasks.find("shop.sell").__name__ == "Sell"


def test_tasks_are_found_in_every_app(
    given: Any, module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import facts

    monkeypatch.setattr(facts, "__path__", [*facts.__path__, str(tmp_path / "more")])
    pack = ("import engines", "@engines.task('warehouse.pack')", "class Pack(engines.ConsumerTask): ...")
    module("more/ergon_tasks.py", *pack)
    given()
    discovery.discover()
    assert "warehouse.pack" in registry.tasks.names()
    monkeypatch.delitem(sys.modules, "facts.ergon_tasks")


@pytest.mark.parametrize(
    ("name", "lines", "words"),
    [
        (
            "gone",
            None,
            r"ERGON_TASKS: the module 'gone' cannot be imported: ModuleNotFoundError: No module named 'gone'",
        ),
        ("wrong", ["1/0"], r"the module 'wrong' cannot be imported: ZeroDivisionError: division by zero"),
        ("needy", ["import nothing_like_it"], r"'needy' cannot be imported: .*No module named 'nothing_like_it'"),
        ("typo", ["class :"], r"the module 'typo' cannot be imported: SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(
    name: str, lines: list[str] | None, words: str, given: Any, module: Module
) -> None:
    if lines:
        module(f"{name}.py", *lines)
    given(ERGON_TASKS=(name,))
    with pytest.raises(DiscoveryError, match=words):
        discovery.discover()


def test_a_module_that_was_put_right_is_found_the_next_time(given: Any, module: Module) -> None:
    module("mended.py", "1/0")
    given(ERGON_TASKS=("mended",))
    with pytest.raises(DiscoveryError):
        discovery.discover()
    module("mended.py", "is_imported = True")
    discovery.discover()


def test_modules_are_imported_once(given: Any, module: Module, tmp_path: Path) -> None:
    module("counted.py", f"with open({str(tmp_path / 'count')!r}, 'a') as file: file.write('x')")
    given(ERGON_TASKS=("counted",))
    discovery.discover()
    discovery.discover()
    assert (tmp_path / "count").read_text() == "x"


def test_services_are_made_when_they_are_asked_for_and_only_once(given: Any, module: Module) -> None:
    module("postal.py", "made = []", "def mail():", "    made.append(1)", "    return object()")
    given(ERGON_SERVICES={"mail": "postal:mail", "letters": "postal.mail"})
    services = discovery.services()

    import postal  # type: ignore[import-not-found]

    assert ({"mail", "letters"} <= set(services), postal.made) == (True, [])
    assert services["mail"] is services["mail"]
    assert discovery.services()["mail"] is services["mail"]
    assert services["letters"] is not services["mail"]
    assert len(postal.made) == 2


def test_a_task_has_a_service_made_when_it_asks_for_it_and_no_other(given: Any, module: Module) -> None:
    module("depot.py", "made = []", "def post():", "    made.append('post')", "    return 'post'", "def rail(): 1/0")
    given(ERGON_SERVICES={"post": "depot:post", "rail": "depot:rail"})
    task: Any = Task(services=discovery.services())

    import depot  # type: ignore[import-not-found]

    assert depot.made == []
    assert (task.post_service, task.services["post"], depot.made) == ("post", "post", ["post"])
    with pytest.raises(DiscoveryError, match="the service 'rail' cannot be made"):
        _ = task.rail_service
    assert not hasattr(task, "road_service")


def test_a_service_takes_the_place_of_a_default_of_the_class() -> None:
    class Sender(Task):
        mail_service = None

    assert Sender(services={"mail": "fast"}).mail_service == "fast"
    assert Sender().mail_service is None


def test_a_service_of_the_settings_takes_the_place_of_one_registered_in_code(given: Any, module: Module) -> None:
    module("fast.py", "def clock(): return 'fast'")
    registry.services.add("tests.clock", lambda: "slow")
    given()
    assert discovery.services()["tests.clock"] == "slow"
    given(ERGON_SERVICES={"tests.clock": "fast.clock"})
    assert discovery.services()["tests.clock"] == "fast"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "nowhere:mail",
            "ERGON_SERVICES: the service 'mail' cannot be made: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("json:mail", "the service 'mail' cannot be made: AttributeError: .*mail"),
        ("mail", "'mail' is neither 'module:factory' nor 'module.factory'"),
        (5, "the service 'mail' cannot be made: TypeError"),
    ],
)
def test_a_service_that_cannot_be_made_is_named(path: Any, words: str, given: Any) -> None:
    given(ERGON_SERVICES={"mail": path})
    services = discovery.services()
    with pytest.raises(DiscoveryError, match=words):
        services["mail"]
    with pytest.raises(KeyError):
        services["nothing"]

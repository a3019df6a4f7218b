"""The import contracts bite: each kind refuses what it is there to refuse."""

import pytest
from grimp import ImportGraph

from tests.architecture.contracts import Apart, MayImport, OnlyIn, OnlyThrough, Pattern, Rules


def graph(*imports: tuple[str, str]) -> ImportGraph:
    built = ImportGraph()
    for importer, imported in imports:
        for module in (importer, imported):
            if module not in built.modules:
                built.add_module(module, is_squashed=module in {"django", "json", "opentelemetry"})
        built.add_import(importer=importer, imported=imported)
    return built


def faults(contract: type[Rules], *imports: tuple[str, str], **options: object) -> list[tuple[str, str]]:
    rules = contract(name="test", session_options={}, contract_options=options)
    return sorted(rules.faults(graph(*imports)))


@pytest.mark.parametrize(
    ("pattern", "module", "covers"),
    [
        ("engines.core", "engines.core", True),
        ("engines.core", "engines.core.policy", True),
        ("engines.core", "engines.corex", False),
        ("*.telemetry", "facts.telemetry", True),
        ("*.telemetry", "engines.drivers.telemetry", False),
    ],
)
def test_a_pattern_covers_a_module_and_what_is_below(pattern: str, module: str, covers: bool) -> None:  # noqa: FBT001
    assert Pattern(pattern).covers(module) is covers


def test_the_core_may_import_itself_and_the_standard_library_only() -> None:
    imports = [("engines.core.a", "engines.core.b"), ("engines.core.a", "json"), ("engines.core.a", "django")]
    options = {"modules": ["engines.core"], "may_import": ["engines.core"], "outside": "standard library"}
    found = faults(MayImport, *imports, ("engines.core.a", "engines.models"), **options)
    assert found == [("engines.core.a", "django"), ("engines.core.a", "engines.models")]


def test_a_package_is_imported_only_where_it_is_allowed() -> None:
    imports = [("engines.telemetry", "opentelemetry"), ("engines.tasks.consumer", "opentelemetry")]
    found = faults(OnlyIn, *imports, package="opentelemetry", modules=["*.telemetry"])
    assert found == [("engines.tasks.consumer", "opentelemetry")]


def test_one_app_reaches_another_only_through_the_named_door() -> None:
    imports = [
        ("engines.connectors.facts", "facts.ledger"),
        ("engines.connectors.facts", "facts.models"),
        ("engines.tasks.consumer", "facts.ledger"),
    ]
    options = {
        "source": "engines",
        "target": "facts",
        "through": ["engines.connectors.facts"],
        "open_parts": ["facts.ledger"],
    }
    assert faults(OnlyThrough, *imports, **options) == [
        ("engines.connectors.facts", "facts.models"),
        ("engines.tasks.consumer", "facts.ledger"),
    ]


def test_edges_do_not_import_each_other_but_apis_share_their_shell() -> None:
    imports = [
        ("facts.api.views", "ergon_site.access.api.problems"),
        ("facts.admin.pages", "facts.api.views"),
        ("facts.admin.pages", "facts.admin.forms"),
    ]
    found = faults(Apart, *imports, apps=["facts", "ergon_site.access"], parts=["api", "admin"])
    assert found == [("facts.admin.pages", "facts.api.views")]

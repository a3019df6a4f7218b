"""Migrations only expand: what runs on the schema of the release before runs on the new one, too."""

from typing import Any

import pytest
from django.db import models
from django.db.migrations import (
    AddField,
    AlterField,
    CreateModel,
    DeleteModel,
    Migration,
    RemoveField,
    RenameField,
    RenameModel,
)
from django.db.migrations.state import ProjectState

from tests.architecture.migrations import all_faults, faults


def migration(name: str, *operations: Any, **said: Any) -> Migration:
    kind = type("Migration", (Migration,), {"operations": list(operations), "__module__": __name__, **said})
    made: Migration = kind(name, "shop")
    return made


FIRST = migration(
    "0001_initial",
    CreateModel("Order", [("id", models.BigAutoField(primary_key=True)), ("note", models.TextField(null=True))]),
)


def found(*later: Migration) -> list[str]:
    state = ProjectState()
    listed = [FIRST, *later]
    for one in listed:
        state = one.mutate_state(state)
    return faults(listed, state)


def test_older_code_works_on_the_newest_schema() -> None:
    assert all_faults() == []


@pytest.mark.parametrize(
    "field", [models.IntegerField(null=True), models.IntegerField(db_default=0), models.ManyToManyField("shop.Order")]
)
def test_a_column_that_may_be_left_out_is_in_order(field: Any) -> None:
    assert found(migration("0002", AddField("order", "weight", field))) == []


def test_a_column_that_older_code_cannot_leave_out_is_a_fault() -> None:
    assert found(migration("0002", AddField("order", "weight", models.IntegerField(default=0)))) == [
        "shop 0002: order.weight is NOT NULL and has no db_default: older code cannot insert a row"
    ]


def test_a_default_that_comes_later_counts() -> None:
    added = migration("0002", AddField("order", "weight", models.IntegerField(default=0)))
    mended = migration("0003", AlterField("order", "weight", models.IntegerField(default=0, db_default=0)))
    assert found(added, mended) == []


def test_a_table_that_older_code_does_not_know_may_be_as_it_likes() -> None:
    made = CreateModel("Parcel", [("id", models.BigAutoField(primary_key=True))])
    assert found(migration("0002", made, AddField("parcel", "weight", models.IntegerField()))) == []


@pytest.mark.parametrize(
    "operation",
    [
        RemoveField("order", "note"),
        RenameField("order", "note", "remark"),
        DeleteModel("Order"),
        RenameModel("Order", "Purchase"),
        AlterField("order", "note", models.TextField(default="")),
        AlterField("order", "note", models.IntegerField(null=True)),
        AlterField("order", "note", models.TextField(null=True, max_length=10)),
    ],
)
def test_what_older_code_uses_stays_until_a_later_release(operation: Any) -> None:
    assert len(found(migration("0002", operation))) == 1
    assert found(migration("0002"), migration("0003", operation, expanded_in="0002")) == []
    assert len(found(migration("0002", operation, expanded_in="0002"))) == 1  # not in the same migration

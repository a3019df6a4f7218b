"""Attention items: causes before consequences, the order of the list, and when an acknowledgement ends."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ergon_site.access.core import attention
from ergon_site.access.core.attention import Acknowledgement, Entry, Item, Others, Severity

NOW = datetime(2026, 11, 17, 14, 30, tzinfo=UTC)
LETTERS, WAITING = ("dead letter", "dead letters"), ("waiting", "waiting")
BREAKER = Item(key="breaker:1", severity=Severity.CRITICAL, title="crawl breaker open", cause="14:02")
GROUP = Item(key="group:1", severity=Severity.WARNING, title="failed", count=16, unit=LETTERS, caused_by=("breaker:1",))
HELD = Item(
    key="held:1", severity=Severity.NOTICE, title="wait", count=8, unit=WAITING, caused_by=("nothing:1", "breaker:1")
)
PAUSED = Item(key="paused:1", severity=Severity.NOTICE, title="orders is paused")
QUOTA = Item(key="quota:1", severity=Severity.WARNING, title="quota is nearly used up")
LOOP = [replace(PAUSED, key="a:1", caused_by=("b:1",)), replace(PAUSED, key="b:1", caused_by=("a:1",))]


def tree(*items: Item) -> list[tuple[str, list[str]]]:
    return [(entry.item.key, [one.key for one in entry.consequences]) for entry in attention.entries(items)]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], []),
        ([PAUSED, QUOTA, BREAKER], [("breaker:1", []), ("quota:1", []), ("paused:1", [])]),
        ([HELD, GROUP, BREAKER], [("breaker:1", ["group:1", "held:1"])]),
        # Without its cause a consequence stands for itself.
        ([GROUP, PAUSED], [("group:1", []), ("paused:1", [])]),
        # A cause is as severe as the worst that it has caused.
        ([QUOTA, PAUSED, replace(GROUP, caused_by=("paused:1",))], [("paused:1", ["group:1"]), ("quota:1", [])]),
        # All that follows from a cause stands under the first one.
        (
            [replace(PAUSED, caused_by=("group:1",)), GROUP, BREAKER],
            [("breaker:1", ["group:1", "paused:1"])],
        ),
        (LOOP, [("a:1", []), ("b:1", [])]),
        ([*LOOP, replace(QUOTA, caused_by=("a:1",))], [("quota:1", []), ("a:1", []), ("b:1", [])]),
        ([GROUP, GROUP], [("group:1", [])]),
    ],
)
def test_causes_come_first_with_their_consequences_under_them(
    items: list[Item], expected: list[tuple[str, list[str]]]
) -> None:
    assert tree(*items) == expected


@pytest.mark.parametrize(
    ("consequences", "expected"),
    [
        ([], ""),
        ([GROUP, HELD], "16 dead letters, 8 waiting"),
        ([replace(GROUP, count=1)], "1 dead letter"),
        ([replace(GROUP, count=1000), replace(GROUP, is_capped=True)], "1,016+ dead letters"),
        ([PAUSED, HELD], "8 waiting"),
    ],
)
def test_consequences_are_summed_up_by_their_unit(consequences: list[Item], expected: str) -> None:
    assert Entry(item=BREAKER, consequences=tuple(consequences)).summary == expected


SEEN = Entry(item=BREAKER, consequences=(GROUP, HELD))
WORD = Acknowledgement(
    key="breaker:1", cause="14:02", severity=3, count=25, is_capped=False, until=NOW + timedelta(hours=1), by="ada"
)


@pytest.mark.parametrize(
    ("entry", "word", "expected"),
    [
        (SEEN, WORD, ""),
        (Entry(item=BREAKER), WORD, ""),
        (SEEN, replace(WORD, until=NOW), "its time is over"),
        (replace(SEEN, item=replace(BREAKER, cause="14:20")), WORD, "it has another cause"),
        (SEEN, replace(WORD, severity=2), "it is more severe"),
        (Entry(item=BREAKER, consequences=(replace(GROUP, count=30),)), WORD, ""),
        (Entry(item=BREAKER, consequences=(replace(GROUP, count=31),)), WORD, "it affects more"),
        (Entry(item=BREAKER, consequences=(GROUP, HELD, PAUSED, QUOTA)), replace(WORD, count=20), "it affects more"),
        (Entry(item=BREAKER, consequences=(replace(GROUP, is_capped=True),)), WORD, "it affects more"),
        (Entry(item=BREAKER, consequences=(replace(GROUP, count=99),)), replace(WORD, is_capped=True), ""),
    ],
)
def test_an_acknowledgement_ends_with_its_time_and_when_the_item_is_worse(
    entry: Entry, word: Acknowledgement, expected: str
) -> None:
    assert attention.why_invalid(entry, word, NOW) == expected


def test_acknowledged_entries_are_apart_with_all_their_consequences() -> None:
    other = replace(WORD, key="quota:1", cause="another")
    board = attention.board([GROUP, BREAKER, QUOTA, HELD], [WORD, other], NOW)
    assert [entry.item.key for entry in board.entries] == ["quota:1"]
    [entry] = board.acknowledged
    assert (entry.item, entry.acknowledged, len(entry.consequences)) == (BREAKER, WORD, 2)
    assert board.find("group:1") is entry
    assert board.find("gone:1") is None
    # A consequence is shown with its cause, whoever has acknowledged it alone.
    [shown] = attention.board([GROUP, BREAKER], [replace(WORD, key="group:1", cause="")], NOW).entries
    assert shown.item is BREAKER


@pytest.mark.parametrize(
    ("items", "shown"),
    [
        # The first, or the newest, has ended.
        ([("breakers", "14:20", 3)], []),
        ([("breakers", "14:02", 3)], []),
        # Too few are left for one item.
        ([("breaker:1", "14:02", 1), ("breaker:2", "14:20", 1)], []),
        ([("breakers", "14:31", 3)], ["breakers"]),
        ([("breaker:1", "14:02", 1), ("breaker:2", "14:31", 1)], ["breaker:2"]),
        # Of one that was acknowledged alone the opening is known.
        ([("breaker:9", "14:02", 1)], []),
        ([("breaker:9", "14:31", 1)], ["breaker:9"]),
    ],
)
def test_what_was_acknowledged_together_is_known_until_something_newer_joins_it(
    items: list[tuple[str, str, int]], shown: list[str]
) -> None:
    words = [replace(WORD, key="breakers", cause="14:20", count=4), replace(WORD, key="breaker:9", count=1)]
    found = [replace(BREAKER, key=key, cause=cause, count=count, gathered_as="breakers") for key, cause, count in items]
    board = attention.board(found, words, NOW)
    assert [entry.item.key for entry in board.entries] == shown
    assert len(board.entries) + len(board.acknowledged) == len(items)


def test_of_each_kind_a_few_are_shown_and_the_others_counted() -> None:
    quotas = [replace(QUOTA, key=f"quota:{number}") for number in range(4)]
    groups = [replace(GROUP, key=f"group:{number}", caused_by=()) for number in range(2)]
    grave = replace(quotas[3], severity=Severity.CRITICAL)
    found = attention.entries([*quotas[:3], *groups, grave])
    shown = attention.shorten(found, 2, {"group": 40, "quota": 1, "leases": 3, "nothing": 0})
    assert [one.count if isinstance(one, Others) else one.item.key for one in shown] == [
        *("quota:3", "quota:0", "quota:1", 2),
        *("group:0", "group:1", 40),
        3,
    ]


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [
        ({}, 7, ((), 7)),
        ({"a": 1}, 7, ((), 7)),
        ({"a": 4}, 7, (("a",), 4)),
        ({"b": 5, "a": 5, "c": 6, "d": 1}, 7, (("c", "a", "b"), 6)),
        ({"a": 100}, 5000, (("a",), 100)),
        ({"a": 99}, 5000, ((), 5000)),
    ],
)
def test_a_group_is_blamed_on_the_causes_of_half_of_it(
    counts: dict[str, int], total: int, expected: tuple[tuple[str, ...], int]
) -> None:
    assert attention.blame(counts, total) == expected


def test_severities_have_words() -> None:
    assert [one.word for one in Severity] == ["notice", "warning", "critical"]

"""Message ids: those that stay the same, and a look at those that do not."""

import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest

from facts.message_ids import check_message_id, event_id, hash_id, uuid_id

RANDOM = "a random UUID"
CLOCK_UUID = "a UUID made from the clock"
CLOCK = "a timestamp"
COUNTER = "a counter"
LIKE_A_COUNTER = "like a counter"


@pytest.mark.parametrize(
    ("message_id", "doubt"),
    [
        ("5b0c8f3e-7f00-4c6e-9a51-d6a2f6b1c0de", RANDOM),
        ("evt-5b0c8f3e-7f00-4c6e-9a51-d6a2f6b1c0de", RANDOM),
        ("evt_5b0c8f3e7f004c6e9a51d6a2f6b1c0de", RANDOM),
        ("deadbeef-7f00-4c6e-9a51-d6a2f6b1c0de", RANDOM),
        ("c2329a1c-c234-11f0-8de9-0242ac120002", CLOCK_UUID),
        ("order:01890a5d-ac96-774b-bcce-b302099a8057", CLOCK_UUID),
        ("1741248600", CLOCK),
        ("1741248600.123", CLOCK),
        ("1741248600000", CLOCK),
        ("1741248600000000", CLOCK),
        ("1741248600000000000", CLOCK),
        ("order-1741248600000", CLOCK),
        ("order-1741248600", CLOCK),
        ("2026-03-06T10:15:00Z", CLOCK),
        ("20260306T101500Z", CLOCK),
        ("20260306T1015", CLOCK),
        ("evt_20260306T101500.123+01:00", CLOCK),
        ("42", COUNTER),
        ("evt-0042", LIKE_A_COUNTER),
        ("msg7", LIKE_A_COUNTER),
    ],
)
def test_an_id_that_a_retry_may_not_repeat_is_doubted(message_id: str, doubt: str) -> None:
    [told] = check_message_id(message_id)
    assert told.startswith(f"{doubt}:")


@pytest.mark.parametrize(
    "message_id",
    [
        hash_id("work_order_created", "WO", "12345"),
        uuid_id("plant-a", "WO:12345:created"),
        event_id("WO", "12345", "created", datetime(2026, 3, 6, tzinfo=UTC)),
        "order-12345-released",
        "WO-2026001234",  # the number of an order
        "order-12345-1741248600000",  # the time of the business
        "urn:order:12345",
        "commande-été-٣٤",
        "",
    ],
)
def test_an_id_that_is_derived_from_the_event_is_not(message_id: str) -> None:
    assert check_message_id(message_id) == []


def test_the_same_event_has_the_same_id() -> None:
    assert hash_id("ab", "c", "d") != hash_id("a", "bc", "d")
    assert uuid_id("plant-a", "x") == uuid_id(uuid.uuid5(uuid.NAMESPACE_DNS, "plant-a"), "x")
    noon = datetime(2026, 3, 6, 12, tzinfo=UTC)
    elsewhere = noon.astimezone(timezone(timedelta(hours=5)))
    assert event_id("WO", "1", "created", noon) == event_id("WO", "1", "created", elsewhere)
    with pytest.raises(ValueError, match="time zone"):
        event_id("WO", "1", "created", noon.replace(tzinfo=None))

"""How large facts may be, and how much room they take: bytes, whatever the script."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import conf, ledger, provisioning
from facts.core.errors import BufferFullError, InvalidFactError, PayloadTooLargeError
from facts.ledger import Appended, Arrival, prepare, reading
from facts.models import Boundary, Fact, ForwardedFact
from tests.commands import ask, run
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.processes import Site

pytestmark = pytest.mark.django_db(transaction=True)
WIDE = {"message_id": 1000, "subject": 2000, "predicate": 500, "object_json": 4 * 1024 * 1024}
SNOW = "\u96ea"


@pytest.fixture
def wide(settings: Any) -> Iterator[None]:
    """As much as may be set."""
    settings.ERGON_FACT_LIMITS = WIDE
    conf.settings.cache_clear()
    yield
    conf.settings.cache_clear()


def stored(buffer: type[Fact] | type[ForwardedFact] = Fact) -> int:
    return sum(len(content.encode()) for content in buffer.objects.values_list("content", flat=True))


def snowy(number: int) -> dict[str, Any]:
    return draft(number, object_json={"note": SNOW * 100})


def test_a_value_is_measured_in_bytes() -> None:
    make_boundary()
    with pytest.raises(PayloadTooLargeError, match="takes 262,145 bytes"):
        ledger.append(draft(1, object_json=SNOW * 87_381))
    assert ledger.append(draft(1, object_json=SNOW * 87_380)).offset == 0


@pytest.mark.parametrize("count", [1, 3, 100])
def test_a_buffer_counts_bytes_however_many_come_at_once(count: int) -> None:
    make_boundary()
    ledger.append_many([snowy(number) for number in range(count)])
    assert Boundary.objects.get().stored_bytes == stored() > 300 * count
    ledger.append_many([snowy(number) for number in range(count + 1)])  # all but one are repeats
    assert Boundary.objects.get().stored_bytes == stored()


def test_a_ceiling_of_bytes_is_one_of_bytes() -> None:
    make_boundary(byte_ceiling=2 * prepare(snowy(0)).size - 1)
    ledger.append(snowy(0))
    with pytest.raises(BufferFullError):
        ledger.append(snowy(1))
    assert Boundary.objects.get().stored_bytes == stored() == prepare(snowy(0)).size


def test_what_comes_from_a_peer_is_counted_in_bytes() -> None:
    made = make_boundary(source_url="https://peer.example", source_token_file="plant", held_by="tests")
    ledger.receive(made.pk, [Arrival(0, prepare(snowy(0)))], cursor=-1, holder="tests")
    assert Boundary.objects.get().stored_bytes == stored(ForwardedFact)


def test_truncation_gives_back_the_bytes_that_it_took() -> None:
    make_boundary()
    ledger.append_many([snowy(number) for number in range(5)])
    Boundary.objects.update(frontier=2, keep_days=0)
    assert ledger.truncate(PLANT, OFFICE, by="tests").removed == 3
    assert Boundary.objects.get().stored_bytes == stored() > 600


def test_buffers_from_before_are_counted_anew() -> None:
    make_boundary()
    make_boundary("Mars", OFFICE, source_url="https://peer.example", source_token_file="plant", held_by="tests")
    ledger.append_many([snowy(0), snowy(1)])
    entry = prepare(draft(0, from_zone="Mars", object_json=SNOW))
    ledger.receive(Boundary.objects.get(from_zone__name="Mars").pk, [Arrival(0, entry)], cursor=-1, holder="tests")
    Boundary.objects.update(stored_bytes=1)
    with connection.schema_editor() as editor:
        import_module("facts.migrations.0007_bytes_as_stored").count(apps, editor)
    counted = dict(Boundary.objects.values_list("from_zone__name", "stored_bytes"))
    assert counted == {PLANT: stored(), "Mars": stored(ForwardedFact)}


def test_a_page_ends_before_it_has_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    make_boundary()
    provisioning.create_consumer("erp", PLANT, OFFICE, by="tests")
    ledger.append_many([snowy(number) for number in range(3)])
    monkeypatch.setattr(reading, "MOST_BYTES", 2 * prepare(snowy(0)).size)
    with CaptureQueriesContext(connection) as asked:
        assert [offset for offset, _ in ledger.fetch("erp").facts] == [0, 1]
    assert asked[-1]["sql"].endswith("LIMIT 2"), "no more than fits is loaded"


@pytest.mark.usefixtures("wide")
def test_the_longest_names_that_may_be_set_are_kept_one_by_one_and_many_at_once() -> None:
    make_boundary()
    names = {"message_id": "i" * 996, "causation_id": "c" * 1000}
    fact = {"subject": f"k:{'s' * 1998}", "predicate": "p" * 500}
    drafts = [draft(n, **names | {"message_id": f"{names['message_id']}{n:04}"}, fact=fact) for n in range(60)]
    assert ledger.append(drafts[0]).offset == 0
    assert all(isinstance(one, Appended) for one in ledger.append_many(drafts))
    run("forward", "--drain")
    assert ForwardedFact.objects.count() == 60


@pytest.mark.usefixtures("wide")
def test_names_of_as_many_bytes_as_an_index_holds_are_kept() -> None:
    make_boundary()
    # No order and no two alike: what repeats itself would be compressed, and fit anyway.
    script = "".join(chr(0x4E00 + number * number % 19_997) for number in range(853))
    told = draft(1, message_id=script, causation_id=script, fact={"subject": f"k:{script[1:]}"})
    assert ledger.append(told).offset == 0
    run("forward", "--drain")
    assert ForwardedFact.objects.get().message_id == script


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("changes", [{"message_id": SNOW * 900}, {"fact": {"subject": f"k:{SNOW * 900}"}}])
def test_a_name_of_more_bytes_than_an_index_holds_is_refused(changes: dict[str, Any]) -> None:
    make_boundary()
    with pytest.raises(InvalidFactError, match="at most 2,560 bytes"):
        ledger.append(draft(1, **changes))
    assert ledger.append(draft(1)).offset == 0


@pytest.mark.usefixtures("wide")
def test_a_line_may_be_as_long_as_the_limits_ask_for(tmp_path: Path) -> None:
    make_boundary()
    file = tmp_path / "facts.jsonl"
    file.write_text(json.dumps(draft(1, object_json="x" * (3 * 1024 * 1024))) + "\n")
    assert ask("facts", "append", "--input", str(file))["offset"] == 0


def test_a_body_may_be_as_large_as_the_limits_ask_for(serve_with: Callable[..., Site]) -> None:
    make_boundary()
    token = clients.create("press", Grant(zones=[PLANT], target_zones=[OFFICE]), by="tests").token.text
    site = serve_with(ERGON_FACT_LIMITS=json.dumps(WIDE))
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{site.url}/api/v1/", headers=headers, timeout=60) as api:
        large = draft(1, object_json="x" * (3 * 1024 * 1024), message_id="i" * 1000)
        assert api.post("facts", json=large).status_code == 201
        too_large = api.post("facts", json=draft(2, object_json="x" * (4 * 1024 * 1024)))
        assert (too_large.status_code, too_large.json()["errors"][0]["pointer"]) == (413, "/fact/object_json")
        document = httpx.get(f"{site.url}/api/schema/", headers={"Accept": "application/json"}, timeout=60).json()
    envelope = document["components"]["schemas"]["EnvelopeRequest"]["properties"]
    assert (envelope["message_id"]["maxLength"], envelope["causation_id"]["maxLength"]) == (1000, 1000)

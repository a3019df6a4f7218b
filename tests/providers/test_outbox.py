"""Dead letters on their way: each is published once, by whoever comes first, when there is a broker."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import kombu
import pytest
from django.db import connections

from engines.worker import maintenance
from providers import ProviderBadRequestError, outbox
from providers.models import OutboxLetter
from tests.processes import free_port
from tests.providers.scripted_providers import scripted

pytestmark = pytest.mark.django_db(transaction=True)

NOBODY = f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture(params=["valkey", "rabbitmq"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "valkey":
        return os.environ["CELERY_BROKER_URL"]
    address: str = request.getfixturevalue("rabbitmq")
    return address


@pytest.fixture
def dead(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[Any]]]:
    """Takes all messages out of a queue of the test's own."""
    queue = f"test.{uuid4().hex[:12]}"
    monkeypatch.setattr(outbox, "QUEUE", queue)

    def take() -> list[Any]:
        found = []
        with kombu.Connection(url) as connection, connection.channel() as channel:
            while message := kombu.Queue(queue, channel=channel).get(no_ack=True):
                found.append(message)
        return found

    yield take
    with kombu.Connection(url) as connection, connection.channel() as channel:
        channel.queue_delete(queue)


def leave(count: int, **about: Any) -> None:
    """Dead letters of tasks that nobody has published."""
    provider = scripted(ProviderBadRequestError("no such keyword"))
    for _ in range(count):
        provider.ask({"keyword": "tea"}, task_name="fetch_rank", **about)


def test_a_letter_is_published_as_plain_json_under_its_own_id(url: str, dead: Callable[[], list[Any]]) -> None:
    leave(1)
    assert (outbox.publish(broker_url=url), outbox.publish(broker_url=url)) == (1, 0)
    letter = OutboxLetter.objects.get()
    [message] = dead()
    assert json.loads(message.body) == letter.payload
    assert (message.content_type, message.properties["message_id"]) == ("application/json", str(letter.pk))
    assert letter.published_at is not None


def test_many_who_publish_at_once_publish_each_letter_once(url: str, dead: Callable[[], list[Any]]) -> None:
    leave(30)
    start, counts = threading.Barrier(4), []

    def publish() -> None:
        start.wait()
        counts.append(outbox.publish(broker_url=url))
        connections.close_all()

    threads = [threading.Thread(target=publish) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 30
    sent = Counter(int(message.properties["message_id"]) for message in dead())
    assert sent == Counter(OutboxLetter.objects.values_list("pk", flat=True))


@pytest.mark.parametrize("url", ["valkey"], indirect=True)
def test_a_letter_that_was_sent_by_someone_who_then_died_is_sent_again(
    url: str, dead: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(1)
    sending = outbox._send

    def send_and_die(*given: Any) -> None:
        sending(*given)
        raise SystemExit

    # Nothing else dies at just this moment, every time.
    monkeypatch.setattr(outbox, "_send", send_and_die)
    with pytest.raises(SystemExit):
        outbox.publish(broker_url=url)
    monkeypatch.setattr(outbox, "_send", sending)
    assert outbox.publish(broker_url=url) == 1
    first, second = (message.properties["message_id"] for message in dead())
    assert first == second


def test_a_correlation_of_any_length_is_published(url: str, dead: Callable[[], list[Any]]) -> None:
    leave(1, correlation_id="\U0001f375" * 200)
    leave(1, correlation_id="order-7")
    assert outbox.publish(broker_url=url) == 2
    told = {message.properties.get("correlation_id"): json.loads(message.body) for message in dead()}
    assert told["order-7"]["correlation_id"] == "order-7"
    assert told[None]["correlation_id"] == "\U0001f375" * 200


@pytest.mark.parametrize("url", ["valkey"], indirect=True)
def test_a_letter_that_cannot_be_sent_does_not_stand_in_the_way(url: str, dead: Callable[[], list[Any]]) -> None:
    leave(3)
    first, *others = OutboxLetter.objects.order_by("pk")
    del first.payload["correlation_id"]
    first.save()
    with pytest.raises(KeyError):
        outbox.publish(broker_url=url)
    with pytest.raises(KeyError):
        outbox.publish(broker_url=url)
    assert [message.properties["message_id"] for message in dead()] == [str(letter.pk) for letter in others]
    assert OutboxLetter.objects.get(published_at__isnull=True).failures == 2


def test_while_the_broker_is_away_letters_wait() -> None:
    leave(1)
    with pytest.raises(Exception, match="refused"):
        outbox.publish(broker_url=NOBODY)
    assert OutboxLetter.objects.filter(published_at__isnull=True).count() == 1


def test_maintain_publishes_what_waits() -> None:
    leave(2)
    [chore] = [chore for chore in maintenance.all_chores(30.0) if chore.name == "dead_letters_published"]
    assert (chore.run(), chore.run()) == (2, 0)

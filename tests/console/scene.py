"""A little of everything that the console shows, by the verbs themselves."""

from engines import pipelines, policies, schedules, transactions
from engines.dead_letters import bulk
from engines.dead_letters.bulk import Terms
from ergon_site.access import clients
from ergon_site.access.clients import Grant
from facts import ledger, provisioning
from facts.models import Boundary, Fact
from providers import ProviderConnectionError, calls, policies as provider_policies
from tests.console import records
from tests.factories import ArtifactFactory, ForwardedFactFactory, TaskExecutionFactory, make_pipeline
from tests.facts.drafts import OFFICE, PLANT, draft, make_boundary
from tests.providers.scripted_providers import WHO, scripted

WHY = {"by": "lea", "reason": "the bank is back"}
COPIED = ("boundary", "offset", "message_id", "subject", "predicate", "correlation_id", "causation_id", "content")


def fill() -> None:
    _fill_engines()
    _fill_facts()
    _fill_providers()
    clients.create("press", Grant(scopes=["platform"]), by="lea")


def _fill_engines() -> None:
    policies.write("patient", {}, kind="consumer", by="ada", reason="for the slow provider")
    policies.write("patient", {"loop": {"batch": {"size": 9}}}, by="ada", reason="bigger batches", expected=1)
    orders, archive = make_pipeline("orders", policy="patient", redacted=["card"]), make_pipeline("archive")
    pipelines.pause(archive.name, **WHY)
    schedules.create("nightly", schedules.Plan(pipeline="orders", cron="0 3 * * *", payload={}), by="lea")
    records.make_worker("orders")
    records.succeed(orders, {"n": 1}, {"paid": True}, correlation_id="order-1")
    letters = [records.fail(orders, {"n": number, "card": "4111"}) for number in range(3)]
    operation = bulk.begin("replay", letters[0].group_id, Terms(canary=1, rate=100), **WHY)
    bulk.advance()
    bulk.turn(operation.pk, "cancelled", **WHY)
    transactions.submit("archive", {"n": 2})


def _fill_facts() -> None:
    boundary = make_boundary()
    provisioning.create_consumer("booking", PLANT, OFFICE, by="lea")
    ArtifactFactory.create()
    ledger.append_many([draft(1, correlation_id="wo-1"), draft(2, correlation_id="wo-1")])
    for fact in Fact.objects.all():
        ForwardedFactFactory.create(**{name: getattr(fact, name) for name in (*COPIED, "digest")})
    Boundary.objects.filter(pk=boundary.pk).update(frontier=1)
    provisioning.close_gate(PLANT, OFFICE, **WHY)


def _fill_providers() -> None:
    calls.set_quota(WHO, limit=10, window=86_400, by="ada", reason="a contract")
    provider_policies.write("rank", "rank_snapshot", body={}, by="ada", reason="too many")
    task = TaskExecutionFactory.create(celery_task_id="c-1")
    scripted({}).ask()
    down = ProviderConnectionError("no route")
    scripted(down).ask(task_execution_id=task.pk, task_name="ranks.fetch", correlation_id="order-7")

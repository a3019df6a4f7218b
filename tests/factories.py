"""Rows for tests, by factory_boy: a test names the fields that it is about, and the factory fills in the rest.

Where a verb makes the row in production, its factory calls that verb.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from factory.declarations import LazyAttribute, LazyFunction, Sequence, SubFactory
from factory.django import DjangoModelFactory

from engines import pipelines
from engines.models import DeadLetterHour, Pipeline, Policy, PolicyVersion, Throughput, WaitingSample, Worker
from engines.reads.depth import ALL_PIPELINES
from ergon_site.access.models import ApiClient, AuditEntry
from facts.models import Artifact, Boundary, Fact, ForwardedFact
from providers.models import Gate, ProviderHealthState, QuotaState, TaskExecution
from tests.facts import drafts
from tests.providers.scripted_providers import WHO


def this_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


class PipelineFactory(DjangoModelFactory[Pipeline]):
    """Made by its verb, from the fields of a plan."""

    class Meta:
        model = Pipeline

    name = Sequence(lambda number: f"pipeline-{number}")
    task = "tests.act"

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Pipeline:  # noqa: ARG003
        return pipelines.create(kwargs.pop("name"), pipelines.Plan(**kwargs), by="tests")


def make_pipeline(name: str = "orders", task: str = "tests.act", **plan: Any) -> Pipeline:
    """A pipeline by its name, which most tests need."""
    return PipelineFactory.create(name=name, task=task, **plan)


class PolicyFactory(DjangoModelFactory[Policy]):
    """Without a version, and so with nothing in force."""

    class Meta:
        model = Policy

    name = Sequence(lambda number: f"policy-{number}")
    kind = "consumer"


class PolicyVersionFactory(DjangoModelFactory[PolicyVersion]):
    """Written past the verb that checks it."""

    class Meta:
        model = PolicyVersion

    policy = SubFactory(PolicyFactory)
    number = 1
    author = "tests"
    reason = "by hand"


class WorkerFactory(DjangoModelFactory[Worker]):
    """One that has just been heard of, though no process stands behind it."""

    class Meta:
        model = Worker

    host = "host"
    pid = Sequence(lambda number: number + 1)
    pipelines = LazyFunction(list)
    lease = 3600


class ThroughputFactory(DjangoModelFactory[Throughput]):
    """What one worker ended in one minute."""

    class Meta:
        model = Throughput

    pipeline = SubFactory(PipelineFactory)
    minute = LazyFunction(this_minute)
    worker = 1


class WaitingSampleFactory(DjangoModelFactory[WaitingSample]):
    class Meta:
        model = WaitingSample

    pipeline_id = ALL_PIPELINES
    minute = LazyFunction(this_minute)


class DeadLetterHourFactory(DjangoModelFactory[DeadLetterHour]):
    class Meta:
        model = DeadLetterHour

    hour = LazyFunction(lambda: this_minute().replace(minute=0))
    count = 1


class ApiClientFactory(DjangoModelFactory[ApiClient]):
    """Without a token: nobody can use it."""

    class Meta:
        model = ApiClient

    name = Sequence(lambda number: f"client-{number}")
    created_by = "tests"


class AuditEntryFactory(DjangoModelFactory[AuditEntry]):
    class Meta:
        model = AuditEntry

    actor = "tests"
    action = "test.act"
    target = "test"


class BoundaryFactory(DjangoModelFactory[Boundary]):
    """Made by its verb, with its zones."""

    class Meta:
        model = Boundary

    from_zone = drafts.PLANT
    to_zone = drafts.OFFICE

    @classmethod
    def _create(cls, model_class: Any, *args: Any, **kwargs: Any) -> Boundary:  # noqa: ARG003
        return drafts.make_boundary(**kwargs)


class FactFactory(DjangoModelFactory[Fact]):
    """Written past the ledger: no offset is drawn, no counter moved."""

    class Meta:
        model = Fact

    boundary = SubFactory(BoundaryFactory)
    offset = Sequence(int)
    message_id = LazyAttribute(lambda fact: f"message-{fact.offset}")
    subject = "work_order:1"
    predicate = "was_released"
    content = "{}"
    digest = ""


class ForwardedFactFactory(FactFactory):
    class Meta:
        model = ForwardedFact


class ArtifactFactory(DjangoModelFactory[Artifact]):
    """Its row alone: there are no bytes."""

    class Meta:
        model = Artifact

    bucket = "batch-files"
    key = Sequence(lambda number: f"order-{number}/label.pdf")
    digest = f"sha256:{'a' * 64}"
    size = 1
    media_type = "application/pdf"
    stored_as = LazyFunction(lambda: uuid4().hex)
    created_by = "tests"


class OfCapabilityFactory(DjangoModelFactory[Any]):
    """Fields of whatever belongs to a tenant, a provider and a capability."""

    class Meta:
        abstract = True

    tenant_id = WHO.tenant_id
    provider_name = WHO.provider_name
    capability = WHO.capability


class GateFactory(OfCapabilityFactory):
    class Meta:
        model = Gate


class QuotaStateFactory(OfCapabilityFactory):
    """A window that has begun a minute ago and lasts for another one."""

    class Meta:
        model = QuotaState

    limit_count = 10
    used_count = 0
    window_start = LazyFunction(lambda: datetime.now(UTC) - timedelta(minutes=1))
    window_end = LazyFunction(lambda: datetime.now(UTC) + timedelta(minutes=1))


class ProviderHealthStateFactory(OfCapabilityFactory):
    class Meta:
        model = ProviderHealthState


class TaskExecutionFactory(DjangoModelFactory[TaskExecution]):
    class Meta:
        model = TaskExecution

    task_name = "ranks.fetch"
    celery_task_id = Sequence(lambda number: f"task-{number}")
    tenant_id = WHO.tenant_id

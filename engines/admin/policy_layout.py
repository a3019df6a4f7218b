"""The layout of a policy's form: a section for the loop, one for each step, one for the rest."""

from dataclasses import fields
from typing import Any

from engines.core import retry_preview
from engines.core.policy import ConsumerPolicy, ProducerPolicy, RetryPolicy
from engines.core.retry_preview import RetryPreview
from ergon_site.access.core import ruled
from ergon_site.access.policies.sections import Drawing, Layout

HEADINGS = {"loop": "Limits", "steps.fetch": "Source"}


def of(kind: type[ConsumerPolicy | ProducerPolicy]) -> Layout:
    steps = [f"steps.{step.name}" for step in fields(ruled.rule(kind, "steps")["kind"])]
    return Layout(
        sections=("loop", *steps),
        headings=HEADINGS,
        rest="Record",
        drawings={step: _attempts(f"{step}.retry") for step in steps},
    )


def _attempts(path: str) -> Drawing:
    return Drawing(path=path, draw=_outlook, template="console/outlook.html")


def _outlook(values: dict[str, Any]) -> RetryPreview:
    return retry_preview.of(RetryPolicy(**values))

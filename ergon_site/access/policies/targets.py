"""A policy as the audit log names it."""

from django.db.models import CharField, OuterRef, Value
from django.db.models.functions import Concat

from ergon_site.access.policies.models import BETWEEN, PolicyRow


def target_name(policy: PolicyRow) -> str:
    return f"{policy._meta.verbose_name} {policy}"  # noqa: SLF001 (Django's own way)


def of_each(model: type[PolicyRow]) -> Concat:
    """The same, for a query within one that goes through the policies."""
    first, *others = model.identity
    parts = [Value(f"{model._meta.verbose_name} "), OuterRef(first)]  # noqa: SLF001 (Django's own way)
    for column in others:
        parts += [Value(BETWEEN), OuterRef(column)]
    return Concat(*parts, output_field=CharField())

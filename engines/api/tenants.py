"""The dead letters, groups and bulk operations that a client may see, by its tenants.

Dead letters of providers are of a tenant, those of pipelines are of none. The letters of a group have one source: the
name of a pipeline, or `provider/capability`.
"""

from collections.abc import Sequence

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet
from rest_framework.exceptions import PermissionDenied

from engines.core.states import LetterState
from engines.models import BulkItem, BulkOperation, DeadLetter, DeadLetterGroup
from ergon_site.access.api_identity import Caller
from ergon_site.access.core import scopes

ONE = "This client may not see the tenant of this dead letter."
NONE = "This client may not see any tenant whose dead letters are in this group."
ALL = "This client may not see every tenant whose dead letters are in this group."
OPERATION = "This client may not see every tenant that this bulk operation concerns."
# No pipeline has it in its name.
OF_PROVIDERS = "/"


def visible(caller: Caller) -> Q:
    """The dead letters that a client may see."""
    if _sees_all(caller):
        return Q()
    return Q(details__tenant_id__isnull=True) | Q(details__tenant_id__in=sorted(caller.tenants))


def visible_groups(caller: Caller, groups: QuerySet[DeadLetterGroup]) -> QuerySet[DeadLetterGroup]:
    """The groups with a dead letter that a client may see."""
    if _sees_all(caller):
        return groups
    return groups.filter(~Q(source__contains=OF_PROVIDERS) | Exists(_letters("pk").filter(visible(caller))))


def visible_operations(caller: Caller, operations: QuerySet[BulkOperation]) -> QuerySet[BulkOperation]:
    """The bulk operations that a client has begun, and those on groups of which it may see every dead letter."""
    if _sees_all(caller):
        return operations
    letters = _letters("group_id")
    sees_group = Exists(letters) & ~Exists(letters.exclude(visible(caller)))
    return operations.filter(~Q(group__source__contains=OF_PROVIDERS) | Q(by=caller.actor) | sees_group)


def visible_items(caller: Caller, operation: BulkOperation) -> QuerySet[BulkItem]:
    items: QuerySet[BulkItem] = operation.items.all()
    if _sees_all(caller) or OF_PROVIDERS not in operation.group.source:
        return items
    return items.filter(letter__in=operation.group.letters.filter(visible(caller)))


def narrowed(caller: Caller, groups: Sequence[DeadLetterGroup]) -> Sequence[DeadLetterGroup]:
    """The groups as a client may see them: where others' dead letters are among them, it is told of its own alone."""
    shared = [] if _sees_all(caller) else [group.pk for group in groups if OF_PROVIDERS in group.source]
    own = visible(caller)
    counted = DeadLetter.objects.filter(group__in=shared).order_by().values("group")
    rows = counted.annotate(
        kept=Count("pk"),
        total=Count("pk", filter=own),
        open_count=Count("pk", filter=own & Q(state=LetterState.OPEN.value)),
        first_seen_at=Min("created_at", filter=own),
        last_seen_at=Max("created_at", filter=own),
    )
    told = {row["group"]: row for row in rows if row["kept"] > row["total"]} if shared else {}
    for group in groups:
        if group.pk in told:
            for name in ("total", "open_count", "first_seen_at", "last_seen_at"):
                setattr(group, name, told[group.pk][name])
            group.decided_by = group.decision_reason = ""
    return groups


def check(caller: Caller, letter: DeadLetter) -> None:
    tenant = letter.details.get("tenant_id")
    if tenant is not None and tenant not in caller.tenants and not _sees_all(caller):
        raise PermissionDenied(ONE)


def check_group(caller: Caller, group: DeadLetterGroup) -> None:
    if not visible_groups(caller, DeadLetterGroup.objects.filter(pk=group.pk)).exists():
        raise PermissionDenied(NONE)


def check_all(caller: Caller, group: DeadLetterGroup) -> None:
    """A client that decides about a group decides about all that is open in it."""
    check_group(caller, group)
    if _sees_all(caller) or OF_PROVIDERS not in group.source:
        return
    if group.letters.filter(state=LetterState.OPEN.value).exclude(visible(caller)).exists():
        raise PermissionDenied(ALL)


def check_operation(caller: Caller, operation: BulkOperation) -> None:
    if not visible_operations(caller, BulkOperation.objects.filter(pk=operation.pk)).exists():
        raise PermissionDenied(OPERATION)


def _letters(group: str) -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(group=OuterRef(group)).order_by()


def _sees_all(caller: Caller) -> bool:
    return scopes.allows(caller.scopes, "platform")

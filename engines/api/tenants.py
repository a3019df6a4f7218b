"""The dead letters, groups and bulk operations that a client may see, by its tenants.

Dead letters of providers are of a tenant, those of pipelines are of none. The letters of a group have one source: the
name of a pipeline, or `provider/capability`.
"""

from collections.abc import Sequence

from django.db.models import Count, Exists, Max, Min, OuterRef, Q, QuerySet
from rest_framework.exceptions import PermissionDenied

from engines.core.states import LetterState
from engines.dead_letters.bulk import Selection
from engines.models import BulkItem, BulkOperation, DeadLetter, DeadLetterGroup
from ergon_site.access.api_identity import Caller
from ergon_site.access.bulk_kinds import bulk_kinds
from ergon_site.access.core import scopes

ONE = "This client may not see the tenant of this dead letter."
NONE = "This client may not see any tenant whose dead letters are in this group."
ALL = "This client may not see every tenant whose dead letters are in this group."
OPERATION = "This client may not see every tenant that this bulk operation concerns."
SOME = "This client may not see every tenant whose dead letters are selected."
# The column of a dead letter that leads to a row of the kind.
LETTERS = {"dead_letter": "pk", "dead_letter_group": "group_id"}
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
    # Selected dead letters and groups may be of any tenant.
    is_selected = Q(kind__in=LETTERS, group=None)
    is_of_pipelines = ~Q(group__source__contains=OF_PROVIDERS) & ~is_selected
    return operations.filter(is_of_pipelines | Q(by=caller.actor) | sees_group)


def visible_items(caller: Caller, operation: BulkOperation) -> QuerySet[BulkItem]:
    items: QuerySet[BulkItem] = operation.items.all()
    is_of_pipelines = operation.group is not None and OF_PROVIDERS not in operation.group.source
    if _sees_all(caller) or is_of_pipelines or operation.kind not in LETTERS:
        return items
    if operation.kind == "dead_letter_group":
        return items.filter(target__in=visible_groups(caller, DeadLetterGroup.objects.all()).values("pk"))
    return items.filter(letter__in=DeadLetter.objects.filter(visible(caller)))


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


def check_selection(caller: Caller, selection: Selection) -> None:
    """A client that selects dead letters or groups of them decides about all of these."""
    if _sees_all(caller) or selection.kind not in LETTERS:
        return
    kind = bulk_kinds()[selection.kind]
    rows = kind.rows().filter(pk__in=selection.keys) if selection.where is None else kind.find(selection.where).all()
    letters = DeadLetter.objects.filter(**{f"{LETTERS[selection.kind]}__in": rows.order_by().values("pk")})
    if letters.exclude(visible(caller)).exists():
        raise PermissionDenied(SOME)


def check_turning(caller: Caller, operation: BulkOperation) -> None:
    kind = bulk_kinds().get(operation.kind)
    if kind is not None and not scopes.allows(caller.scopes, kind.scope):
        msg = f"This needs the scope {kind.scope} as well."
        raise PermissionDenied(msg)
    if operation.group is not None:
        check_all(caller, operation.group)


def check_operation(caller: Caller, operation: BulkOperation) -> None:
    if not visible_operations(caller, BulkOperation.objects.filter(pk=operation.pk)).exists():
        raise PermissionDenied(OPERATION)


def _letters(group: str) -> QuerySet[DeadLetter]:
    return DeadLetter.objects.filter(group=OuterRef(group)).order_by()


def _sees_all(caller: Caller) -> bool:
    return scopes.allows(caller.scopes, "platform")

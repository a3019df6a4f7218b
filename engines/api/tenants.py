"""Dead letters of providers are of a tenant: a client sees and settles those of its own tenants alone.

Those of pipelines are of none. The letters of a group have one source, so that all of them are of tenants, or none is.
"""

from django.db.models import Q
from rest_framework.exceptions import PermissionDenied

from engines.core.states import LetterState
from engines.models import DeadLetter, DeadLetterGroup
from ergon_site.access.callers import Caller
from ergon_site.access.core import scopes

ONE = "This client may not see the tenant of this dead letter."
ALL = "This client may not see every tenant whose dead letters are in this group."


def visible(caller: Caller) -> Q:
    """The dead letters that a client may see."""
    if scopes.allows(caller.scopes, "platform"):
        return Q()
    return Q(details__tenant_id__isnull=True) | Q(details__tenant_id__in=sorted(caller.tenants))


def check(caller: Caller, letter: DeadLetter) -> None:
    if not _sees(caller, letter):
        raise PermissionDenied(ONE)


def check_all(caller: Caller, group: DeadLetterGroup) -> None:
    """Whoever decides about a group decides about all that is open in it."""
    first = group.letters.only("details").order_by("pk").first()
    if first is None or "tenant_id" not in first.details or scopes.allows(caller.scopes, "platform"):
        return
    if group.letters.filter(state=LetterState.OPEN.value).exclude(visible(caller)).exists():
        raise PermissionDenied(ALL)


def _sees(caller: Caller, letter: DeadLetter) -> bool:
    tenant = letter.details.get("tenant_id")
    return tenant is None or tenant in caller.tenants or scopes.allows(caller.scopes, "platform")

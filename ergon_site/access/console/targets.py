"""Addresses of the objects that audit entries name: one statement finds those that still exist, of any app."""

import re
from collections.abc import Collection
from typing import Any, NamedTuple

from django.apps import apps
from django.db.models import Model, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat
from django.http import HttpRequest
from django.urls import reverse

from ergon_site.access.console.pages import PAGES, ConsolePage, holds

LARGEST_KEY = 2**63 - 1
# Items have no pages: the dashboard has them all.
ATTENTION = "attention item "


class Noun(NamedTuple):
    """How entries name the objects of a model; the groups of the pattern are the values of the columns."""

    model: str
    pattern: str
    columns: tuple[str, ...] = ("name",)


class Named(NamedTuple):
    """An object that a target names."""

    model: type[Model]
    columns: tuple[str, ...]
    values: tuple[str, ...]


NOUNS = (
    Noun("engines.DeadLetterGroup", r"dead-letter group (\d{1,19})(?:: .*)?", ("pk",)),
    Noun("engines.DeadLetter", r"dead letter (\d{1,19})(?: of .*)?", ("pk",)),
    Noun("engines.BulkOperation", r"bulk operation (\d{1,19})", ("pk",)),
    Noun("engines.TransactionRecord", r"transaction (.+)", ("uid",)),
    Noun("engines.Pipeline", r"pipeline (.+)"),
    Noun("engines.Schedule", r"schedule (.+)"),
    Noun("engines.Policy", r"policy (.+)"),
    Noun("providers.ProviderPolicyRow", r"provider policy (.+)/(.+)", ("provider_name", "capability")),
    Noun("facts.Boundary", r"boundary (.+) → (.+)", ("from_zone__name", "to_zone__name")),
    Noun("facts.Consumer", r"consumer (.+)"),
    Noun("facts.Zone", r"zone (.+)"),
    Noun("access.ApiClient", r"API client (.+)"),
    Noun("auth.User", r"person (.+)", ("username",)),
    # Last: it has no noun of its own, and names with spaces are not told apart.
    Noun("providers.Gate", r"(\S+) (\S+) of (\S+)", ("provider_name", "capability", "tenant_id")),
)


def addresses(request: HttpRequest, targets: Collection[str]) -> dict[str, str]:
    """The address of each target whose object exists, and whose page this person may see."""
    dashboard = {one: reverse("ergon:index") for one in targets if one.startswith(ATTENTION)}
    named = {target: one for target in targets if (one := _named(target)) and _may_see(request, one.model)}
    parts = [_rows(model, named.values()) for model in dict.fromkeys(one.model for one in named.values())]
    if not parts:
        return dashboard
    rows = parts[0].union(*parts[1:], all=True) if len(parts) > 1 else parts[0]
    keys = {(label, name): key for label, key, name in rows}
    return dashboard | {
        target: reverse(f"ergon:{one.model._meta.app_label}_{one.model._meta.model_name}_change", args=[key])  # noqa: SLF001
        for target, one in named.items()
        if (key := keys.get((one.model._meta.label, "\n".join(one.values)))) is not None  # noqa: SLF001
    }


def _named(target: str) -> Named | None:
    for noun in NOUNS:
        found = re.fullmatch(noun.pattern, target, re.DOTALL)
        if found and (model := _installed(noun.model)):
            is_key = noun.columns == ("pk",)
            values = (str(int(found[1])),) if is_key else found.groups()
            return None if is_key and int(found[1]) > LARGEST_KEY else Named(model, noun.columns, values)
    return None


def _installed(label: str) -> type[Model] | None:
    app, _, name = label.partition(".")
    model = apps.all_models[app].get(name.lower()) if app in apps.app_configs else None
    # A project may have people of its own.
    return None if model is None or model._meta.swapped else model  # noqa: SLF001


def _may_see(request: HttpRequest, model: type[Model]) -> bool:
    page = PAGES.get(model)
    return page is not None and issubclass(page, ConsolePage) and holds(request, page.view_right)


def _rows(model: type[Model], named: Collection[Named]) -> QuerySet[Any, Any]:
    """The objects of a model among those named: the model's label, a key, and the name as it was matched."""
    wanted = [one for one in named if one.model is model]
    columns = wanted[0].columns
    texts = [Cast(column, TextField()) for column in columns]
    between = [text for column in texts for text in (Value("\n"), column)][1:]
    name = Concat(*between, output_field=TextField()) if len(texts) > 1 else texts[0]
    which = Q(*(Q(**dict(zip(columns, one.values, strict=True))) for one in wanted), _connector=Q.OR)
    label = Value(model._meta.label, output_field=TextField())  # noqa: SLF001
    rows: Any = model._default_manager.filter(which).order_by()  # noqa: SLF001
    found: QuerySet[Any, Any] = rows.annotate(label_=label, key_=Cast("pk", TextField()), name_=name).values_list(
        "label_", "key_", "name_"
    )
    return found

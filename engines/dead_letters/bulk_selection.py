"""Which rows a bulk operation concerns: those that are named, or those that a filter finds; and a dry run over them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from engines.core.errors import EngineError
from engines.core.states import LetterState
from engines.models import BulkOperation, DeadLetterGroup
from ergon_site.access import keyset
from ergon_site.access.bulk_kinds import BulkKind, bulk_kinds
from ergon_site.access.core.search_terms import PAYLOAD
from ergon_site.access.core.texts import is_key, is_storable
from ergon_site.access.keyset import COUNTED, KeysetQuery, ListingError

# Rows that are named one by one, and groups whose dead letters are meant.
MOST_SELECTED = 1000
# Rows that a dry run looks at.
EXAMINED = 1000
LONGEST_WORD = 1100
LONGEST_NAME = 300
EXPORT = "export"
OF_LETTERS = ("replay", "discard")
GONE = "It is not there any more."


class BulkError(EngineError):
    """A bulk operation that cannot be as asked."""

    code = "invalid_bulk_operation"


class SelectionUnknownError(BulkError):
    """One of the rows that are named is not there."""

    code = "selection_unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Rows of a kind: those with these keys, or those that the words of a list's filters find when it runs."""

    kind: str
    keys: tuple[int, ...] = ()
    where: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What an operation would do now: the rows it concerns, and of those looked at how many it would skip, and why."""

    matched: int
    is_capped: bool = False
    examined: int = 0
    would: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


def groups_of(operation: BulkOperation) -> list[int]:
    """The groups whose open dead letters an operation concerns, if it concerns groups."""
    if operation.group_id is not None:
        return [operation.group_id]
    groups: list[int] = operation.filter.get("groups", [])
    return groups


def checked(verb: str, selection: Selection) -> BulkKind:
    """The kind of a selection that is one, for a verb of that kind."""
    kinds = bulk_kinds()
    if selection.kind not in kinds:
        msg = f"bulk operations act on {', '.join(kinds)}, not on {selection.kind!r}"
        raise BulkError(msg)
    kind = kinds[selection.kind]
    if verb not in (known := verbs_of(kind)):
        msg = f"{kind.nouns} can be changed by {', '.join(known)}, not by {verb!r}"
        raise BulkError(msg)
    if selection.where is None:
        if not 0 < len(selection.keys) <= MOST_SELECTED:
            msg = f"select 1 to {MOST_SELECTED:,} {kind.nouns}, or all that a filter finds"
            raise BulkError(msg)
        return kind
    for word, value in selection.where.items():
        name = PAYLOAD if word.startswith(PAYLOAD) else word
        if name not in kind.words or max(len(word), len(value)) > LONGEST_WORD or not is_storable(word + value):
            words = ", ".join(f"{one}path" if one == PAYLOAD else one for one in sorted(kind.words))
            msg = f"{kind.nouns} are filtered by {words}, in short texts; not by {word!r}"
            raise BulkError(msg)
    return kind


def verbs_of(kind: BulkKind) -> list[str]:
    """What can be done to rows of a kind; replays and discards of a group concern its open dead letters."""
    return [*(OF_LETTERS if kind.name == "dead_letter_group" else ()), *kind.verbs, EXPORT]


def means_letters(verb: str, selection: Selection) -> bool:
    return selection.kind == "dead_letter_group" and verb in OF_LETTERS


def nouns_of(verb: str, selection: Selection) -> tuple[str, str]:
    """What is counted by a dry run: one, and several."""
    kind = bulk_kinds()["dead_letter" if means_letters(verb, selection) else selection.kind]
    return kind.noun, kind.nouns


def keys_of(kind_name: str, ids: Iterable[str]) -> tuple[int, ...]:
    """The keys of rows by the ids that people and machines know them by; one that is not there is refused."""
    kind, asked = bulk_kinds()[kind_name], list(dict.fromkeys(ids))
    if len(asked) > MOST_SELECTED:
        msg = f"select at most {MOST_SELECTED:,} {kind.nouns}, or all that a filter finds"
        raise BulkError(msg)
    fit = [one for one in asked if (is_key(one) if kind.key == "pk" else is_storable(one))]
    names = {str(name): pk for name, pk in kind.rows().filter(**{f"{kind.key}__in": fit}).values_list(kind.key, "pk")}
    if missing := [one for one in asked if one not in names]:
        msg = f"there is no {kind.noun} {missing[0][:LONGEST_NAME]!r}"
        raise SelectionUnknownError(msg)
    return tuple(sorted(names.values()))


def dry_run(verb: str, selection: Selection) -> DryRun:
    """Count what an operation would act on now, and what it would skip."""
    kind = checked(verb, selection)
    if means_letters(verb, selection):
        return dry_run_of_groups(verb, list(groups_with_letters(selection).values_list("pk", flat=True)))
    if selection.where is None:
        rows = list(kind.rows().filter(pk__in=selection.keys))
        return _examined(kind, verb, rows, matched=len(selection.keys), missing=len(selection.keys) - len(rows))
    query = found(kind, selection.where)
    page, count = keyset.paginate(query, size=EXAMINED), query.count()
    if count is None:
        return _examined(kind, verb, page.rows, matched=len(page.rows), is_capped=bool(page.next))
    return _examined(kind, verb, page.rows, matched=min(count, COUNTED), is_capped=count > COUNTED)


def dry_run_of_groups(verb: str, groups: Sequence[int]) -> DryRun:
    kind = bulk_kinds()["dead_letter"]
    letters = kind.rows().filter(group_id__in=groups, state=LetterState.OPEN.value)
    return _examined(kind, verb, list(letters[:EXAMINED]), matched=letters.count())


def _examined(
    kind: BulkKind, verb: str, rows: Sequence[Any], *, matched: int, missing: int = 0, is_capped: bool = False
) -> DryRun:
    refusals = kind.refusals(verb, rows) if verb != EXPORT else [""] * len(rows)
    skipped = Counter(filter(None, refusals)) + Counter({GONE: missing})
    return DryRun(
        matched=matched,
        is_capped=is_capped,
        examined=len(rows) + missing,
        would=refusals.count(""),
        skipped=dict(skipped.most_common()),
    )


def found(kind: BulkKind, where: Mapping[str, str]) -> KeysetQuery:
    try:
        return kind.find(where)
    except (ListingError, EngineError) as error:
        raise BulkError(str(error)) from error


def groups_with_letters(selection: Selection) -> QuerySet[DeadLetterGroup]:
    """The groups of a selection that have open dead letters."""
    if selection.where is None:
        keys = list(selection.keys)
    else:
        query = found(bulk_kinds()["dead_letter_group"], selection.where)
        keys = [group.pk for group in keyset.paginate(query, size=MOST_SELECTED).rows]
    groups = DeadLetterGroup.objects.filter(pk__in=keys, open_count__gt=0)
    if not groups.exists():
        msg = "none of these groups has an open dead letter"
        raise BulkError(msg)
    return groups


def exported(operation: BulkOperation) -> QuerySet[Any]:
    """The rows of an export, up to its cap: those that were selected, or those that its filter finds now."""
    kind = bulk_kinds().get(operation.kind)
    if kind is None or operation.verb != EXPORT:
        msg = f"the bulk operation {operation.pk} is not an export"
        raise BulkError(msg)
    if "ids" in operation.filter:
        return kind.rows().filter(pk__in=operation.filter["ids"]).order_by("-pk")[: operation.cap]
    return found(kind, operation.filter["where"]).all()[: operation.cap]

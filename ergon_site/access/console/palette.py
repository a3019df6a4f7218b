"""The palette: finds pages, rows, saved views and acts by a text, as far as a person may see and do them.

Every look is at most a few rows of an index, or a walk through a table that stays small.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import CharField, F, IntegerField, Value
from django.db.models.functions import Cast, Length
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst

from ergon_site.access.core.roles import Right
from ergon_site.access.core.texts import is_storable

LONGEST_TEXT = 200
# Of one kind; and of all names that contain the text, the shortest.
MOST, MOST_NAMES = 6, 100
LIMITS = {"Pages": 12, "Acts": 12}


class Found(NamedTuple):
    """A line of the palette; with the key of its row, and the mark that tells which acts the row allows."""

    title: str
    note: str
    address: str
    key: Any = None
    mark: str = ""


class Deed(NamedTuple):
    """An act that the palette offers on rows with this mark."""

    title: str
    action: str
    right: Right
    mark: str = ""


class Section(NamedTuple):
    title: str
    lines: list[Found]


def find(request: HttpRequest, text: str, pages: Sequence[Any], menu: Iterable[Mapping[str, Any]]) -> list[Section]:
    """What a text may mean, by kind: pages, rows, acts; before anything is typed, saved views come first."""
    text = text.strip()[:LONGEST_TEXT]
    text = text if is_storable(text) else ""
    seen = [page for page in pages if hasattr(page, "found_by") and page.has_view_permission(request)]
    to_pages = list(_pages(menu, text))
    found: dict[str, list[Found]] = {"Pages": to_pages} if text else {}
    name, acts = _without_act(text, seen), [*_new_rows(request, seen)]
    lines = [*_named(request, name, [page for page in seen if page.found_by and (text or page.is_offered)])]
    if text:
        lines += [(page, line) for page in seen for line in page.find(request, name)]
    for page, line in lines:
        found.setdefault(capfirst(page.opts.verbose_name_plural), []).append(line)
        acts += _acts(request, page, line)
    found.setdefault("Pages", to_pages)
    found["Acts"] = [act for act in acts if _begins(act.title, text)]
    return [
        Section(title, lines[: LIMITS.get(title, MOST) if text else MOST_NAMES])
        for title, lines in found.items()
        if lines
    ]


def _pages(menu: Iterable[Mapping[str, Any]], text: str) -> Iterator[Found]:
    for group in menu:
        for item in group["items"]:
            if _begins(f"{item['title']} {group['title']}", text):
                yield Found(str(item["title"]), str(group["title"]), str(item["link"]))


def _begins(title: str, text: str) -> bool:
    """Whether the words of a text are the beginnings of words of a title."""
    known = title.lower().split()
    return all(any(one.startswith(word) for one in known) for word in text.lower().split())


def _without_act(text: str, pages: Sequence[Any]) -> str:
    """The name in `pause invoices`."""
    verb, _, rest = text.partition(" ")
    known = (deed.title.lower() for page in pages for deed in page.deeds)
    return rest.strip() if rest.strip() and any(one.split()[0] == verb.lower() for one in known) else text


def _named(request: HttpRequest, text: str, pages: Sequence[Any]) -> Iterator[tuple[Any, Found]]:
    """Rows of small tables whose name contains the text, by one statement for all tables."""
    if not pages:
        return
    queries = [
        page.found_rows(request)
        .order_by()
        .annotate(
            _place=Value(place, IntegerField()),
            _name=Cast(F(page.found_by) if isinstance(page.found_by, str) else page.found_by, CharField()),
            _mark=Cast(page.found_mark, CharField()),
        )
        .filter(_name__icontains=text)
        .annotate(_size=Length("_name"))
        .values_list("_place", "pk", "_name", "_mark", "_size")
        for place, page in enumerate(pages)
    ]
    rows = queries[0].union(*queries[1:], all=True).order_by("_size", "_name")[:MOST_NAMES]
    for place, key, name, mark, _ in rows:
        yield pages[place], Found(name, mark, pages[place].found_address(key), key, mark)


def _acts(request: HttpRequest, page: Any, line: Found) -> Iterator[Found]:
    for deed in page.deeds:
        if deed.mark == line.mark and request.user.has_perm(deed.right.permission):
            address = reverse(f"ergon:{page.opts.app_label}_{page.opts.model_name}_{deed.action}", args=[line.key])
            yield Found(f"{deed.title} {line.title}…", str(page.opts.verbose_name), address)


def _new_rows(request: HttpRequest, pages: Sequence[Any]) -> Iterator[Found]:
    for page in pages:
        title = getattr(page, "new_title", f"New {page.opts.verbose_name}")
        if title and page.edit_right and page.has_add_permission(request):
            yield Found(
                title,
                str(page.opts.verbose_name_plural),
                reverse(f"ergon:{page.opts.app_label}_{page.opts.model_name}_add"),
            )

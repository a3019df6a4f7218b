"""The layout of a policy's form: a card for each section, a group for each part."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ergon_site.access.core import ruled
from ergon_site.access.policies.form import PolicyForm

# The fields that are not the policy's.
KEPT = frozenset(PolicyForm.base_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A preview in a section of the form: `draw` is given the values below `path`."""

    path: str
    draw: Callable[[dict[str, Any]], Any]
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which parts are sections (all at the top, if none is named), what is drawn in them, and which are folded."""

    sections: tuple[str, ...] = ()
    # Fields that stand beside parts rather than in one of their own need a heading too.
    headings: Mapping[str, str] = field(default_factory=dict)
    # The title of the section for the fields that are in no other.
    rest: str = "Other"
    drawings: Mapping[str, Drawing] = field(default_factory=dict)
    # Single fields that are shown first, with labels of their own, under a title.
    first: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Sections that are shown without being asked for; all, if none is named.
    unfolded: frozenset[str] = frozenset()


def sections(form: PolicyForm, layout: Layout) -> Iterator[dict[str, Any]]:
    """The sections of the form; where there is something to draw, `drawn` is None while a field is wrong."""
    paths = layout.sections or tuple(ruled.parts(form.kind))
    taken = {path for fields_of in layout.first.values() for path in fields_of}
    shown = [path for path in paths if not layout.unfolded or path in layout.unfolded]
    for path in shown:
        yield _section(form, path, layout, taken)
    for title, labels in layout.first.items():
        for path, label in labels.items():
            form[path].label = label
        yield {"key": title.lower(), "title": title, "groups": [{"fields": [form[path] for path in labels]}]}
    for path in paths:
        if path not in shown:
            yield _folded(form, _section(form, path, layout, taken))
    within = tuple(f"{path}." for path in paths)
    rest = [form[path] for path in form.fields if path not in KEPT | taken and not path.startswith(within)]
    if rest:
        section = {"key": "rest", "title": layout.rest, "groups": [{"fields": rest}]}
        yield _folded(form, section) if layout.unfolded else section


def _folded(form: PolicyForm, section: dict[str, Any]) -> dict[str, Any]:
    """A section that is closed unless a field of it is wrong or was edited; closed, it tells what is no default."""
    names = [one.name for group in section["groups"] for one in group["fields"]]
    is_open = any(form.is_edited(name) for name in names)
    return {**section, "is_folded": True, "is_open": is_open, "summary": "" if is_open else _summary(form, names)}


def _summary(form: PolicyForm, names: list[str]) -> str:
    told = [
        f"{form.fields[name].label}: {ruled.words(form.kind, name, form.initial[name])}"
        for name in names
        if not form.is_default(name)
    ]
    return ", ".join(told).lower()


def _section(form: PolicyForm, path: str, layout: Layout, taken: set[str]) -> dict[str, Any]:
    rule, drawing = ruled.rule(form.kind, path), layout.drawings.get(path)
    values = form.values(drawing.path) if drawing else None
    return {
        "key": path.replace(".", "-"),
        "title": _title(path),
        "meaning": rule["meaning"],
        "groups": list(_groups(form, path, rule["kind"], layout, taken)),
        "drawing": drawing,
        "drawn": drawing.draw(values) if drawing and values is not None else None,
    }


def _groups(form: PolicyForm, path: str, kind: Any, layout: Layout, taken: set[str]) -> Iterator[dict[str, Any]]:
    """The fields of each small part, and those that stand beside the parts."""
    own, has_parts = [], False
    for one in fields(kind):
        inner = f"{path}.{one.name}"
        if "kind" in one.metadata:
            has_parts = True
            below = [form[name] for name in form.fields if name.startswith(f"{inner}.") and name not in taken]
            if below:
                yield {"title": _title(inner), "meaning": one.metadata["meaning"], "fields": below}
        elif inner in form.fields and inner not in taken:
            own.append(form[inner])
    if own:
        yield {"title": layout.headings.get(path, "Other" if has_parts else ""), "fields": own}


def _title(path: str) -> str:
    return path.rpartition(".")[2].replace("_", " ").capitalize()

"""The layout of a policy's form: a card for each section, a group for each part."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ergon_site.access.core import ruled
from ergon_site.access.policies.form import PolicyForm


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A preview in a section of the form: `draw` is given the values below `path`."""

    path: str
    draw: Callable[[dict[str, Any]], Any]
    template: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which parts are sections (all at the top, if none is named), and what is drawn in them."""

    sections: tuple[str, ...] = ()
    # Fields that stand beside parts rather than in one of their own need a heading too.
    headings: Mapping[str, str] = field(default_factory=dict)
    # The title of the section for the fields that are in no other.
    rest: str = "Other"
    drawings: Mapping[str, Drawing] = field(default_factory=dict)


def sections(form: PolicyForm, layout: Layout) -> Iterator[dict[str, Any]]:
    """The cards of the form; where there is something to draw, `drawn` is None while a field is wrong."""
    paths = layout.sections or tuple(ruled.parts(form.kind))
    for path in paths:
        rule, drawing = ruled.rule(form.kind, path), layout.drawings.get(path)
        values = form.values(drawing.path) if drawing else None
        yield {
            "key": path.replace(".", "-"),
            "title": _title(path),
            "meaning": rule["meaning"],
            "groups": list(_groups(form, path, rule["kind"], layout)),
            "drawing": drawing,
            "drawn": drawing.draw(values) if drawing and values is not None else None,
        }
    within = tuple(f"{path}." for path in paths)
    rest = [form[path] for path, _ in ruled.leaves(form.kind) if not path.startswith(within)]
    if rest:
        yield {"key": "rest", "title": layout.rest, "groups": [{"fields": rest}]}


def _groups(form: PolicyForm, path: str, kind: Any, layout: Layout) -> Iterator[dict[str, Any]]:
    """The fields of each small part, and those that stand beside the parts."""
    own, has_parts = [], False
    for one in fields(kind):
        inner = f"{path}.{one.name}"
        if inner in form.fields:
            own.append(form[inner])
        else:
            has_parts = True
            below = [form[name] for name in form.fields if name.startswith(f"{inner}.")]
            yield {"title": _title(inner), "meaning": one.metadata["meaning"], "fields": below}
    if own:
        yield {"title": layout.headings.get(path, "Other" if has_parts else ""), "fields": own}


def _title(path: str) -> str:
    return path.rpartition(".")[2].replace("_", " ").capitalize()

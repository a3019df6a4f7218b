"""How the form of a policy is laid out: a section for the loop, one for each step, one for the rest."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from django import forms

from engines.core import outlook
from engines.core.outlook import Outlook
from engines.core.policy import RetryPolicy
from engines.core.rules import Policy

if TYPE_CHECKING:
    from engines.admin.policy_form import PolicyForm

# Fields that stand beside policies rather than in one of their own need a heading too.
OWN = {"loop": "Limits", "steps.fetch": "Source"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The fields of one small policy."""

    title: str
    meaning: str
    fields: list[forms.BoundField]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A card of the form; a step's has a drawing of its attempts, or says why there is none."""

    key: str
    title: str
    meaning: str
    groups: list[Group]
    outlook: Outlook | None = None
    is_step: bool = False


def sections(form: "PolicyForm", kind: type[Policy]) -> Iterator[Section]:
    parts = {one.name: one.metadata for one in fields(kind)}  # type: ignore[arg-type]
    yield _section(form, "loop", parts["loop"])
    for step in fields(parts["steps"]["kind"]):
        yield _section(form, f"steps.{step.name}", step.metadata)
    rest = [form[name] for name in parts if name in form.fields]
    yield Section(key="rest", title="Record", meaning="", groups=[Group(title="", meaning="", fields=rest)])


def drawings(form: "PolicyForm", kind: type[Policy]) -> Iterator[Section]:
    return (section for section in sections(form, kind) if section.is_step)


def _section(form: "PolicyForm", path: str, rule: Any) -> Section:
    is_step = path.startswith("steps.")
    return Section(
        key=path.replace(".", "-"),
        title=path.removeprefix("steps.").capitalize(),
        meaning=rule["meaning"],
        groups=list(_groups(form, path, rule["kind"])),
        outlook=_outlook(form, path) if is_step else None,
        is_step=is_step,
    )


def _groups(form: "PolicyForm", path: str, kind: Any) -> Iterator[Group]:
    own = []
    for one in fields(kind):
        inner = f"{path}.{one.name}"
        if inner in form.fields:
            own.append(form[inner])
        else:
            below = [form[name] for name in form.fields if name.startswith(f"{inner}.")]
            title = one.name.replace("_", " ").capitalize()
            yield Group(title=title, meaning=one.metadata["meaning"], fields=below)
    if own:
        yield Group(title=OWN.get(path, "Other"), meaning="", fields=own)


def _outlook(form: "PolicyForm", path: str) -> Outlook | None:
    """None while a field is wrong."""
    values = form.values(f"{path}.retry")
    return None if values is None else outlook.of(RetryPolicy(**values))

"""The roles of the console and the rights each one gives."""

from enum import StrEnum


class Right(StrEnum):
    """A thing that a person may do in the console, in every app."""

    VIEW = "view"
    OPERATE = "operate"
    LEAD = "lead"
    EDIT_POLICIES = "edit_policies"
    AUDIT = "audit"
    ADMINISTER = "administer"

    @property
    def permission(self) -> str:
        return f"access.{self.value}"


MEANINGS = {
    Right.VIEW: "See the console",
    Right.OPERATE: "Replay, discard, cancel, pause and resume one at a time",
    Right.LEAD: "Act in bulk, override, replay with edited payloads",
    Right.EDIT_POLICIES: "Write and activate policy versions",
    Right.AUDIT: "Read and export the audit log",
    Right.ADMINISTER: "Manage people, roles and API clients",
}

ROLES: dict[str, tuple[Right, ...]] = {
    "viewer": (Right.VIEW,),
    "operator": (Right.VIEW, Right.OPERATE),
    "lead": (Right.VIEW, Right.OPERATE, Right.LEAD),
    "policy editor": (Right.VIEW, Right.EDIT_POLICIES),
    "auditor": (Right.VIEW, Right.AUDIT),
    "administrator": tuple(Right),
}


def reason_missing(right: Right) -> str:
    """Why a button is disabled, for the person who may not press it."""
    holders = [role for role, rights in ROLES.items() if right in rights]
    return f"Needs the role {' or '.join(holders)}."

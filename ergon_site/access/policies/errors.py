"""Errors of the verbs of policies; an app may derive its own under its root."""


class PolicyRefusal(Exception):  # noqa: N818 (nothing has gone wrong)
    """The root of what is refused."""

    code = "policy_refused"


class PolicyUnknownError(PolicyRefusal):
    code = "policy_unknown"

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no policy named {name!r}")


class VersionUnknownError(PolicyRefusal):
    code = "version_unknown"

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"the policy {name!r} has no version {number}")


class StalePolicyError(PolicyRefusal):
    """The policy was changed by somebody else meanwhile."""

    code = "stale_policy"

    def __init__(self, name: str, active: int) -> None:
        super().__init__(f"the policy {name!r} has changed to version {active}: read it again")
        self.active = active

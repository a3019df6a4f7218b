import pytest

from ergon_site.access.core import scopes
from ergon_site.access.core.roles import MEANINGS, ROLES, Right, reason_missing
from ergon_site.access.core.scopes import BOUNDARY_SCOPES, UnknownScopeError


def test_a_client_of_the_boundary_gets_the_four_scopes_if_none_is_named() -> None:
    assert scopes.grant([], at_boundary=True) == BOUNDARY_SCOPES


def test_a_client_gets_what_was_asked_for_and_nothing_else() -> None:
    assert scopes.grant(["platform", "platform"], at_boundary=True) == ("platform",)
    assert scopes.grant([], at_boundary=False) == ()


def test_an_unknown_scope_is_refused_by_name() -> None:
    with pytest.raises(UnknownScopeError, match="'facts:erase'"):
        scopes.grant(["facts:erase"], at_boundary=False)


def test_a_scope_allows_itself_only() -> None:
    assert scopes.allows(["policies:read"], "policies:read")
    assert not scopes.allows(["policies:write"], "policies:read")


def test_every_right_is_explained_and_held_by_the_administrator() -> None:
    assert set(MEANINGS) == set(Right) == set(ROLES["administrator"])


def test_a_disabled_button_names_the_roles_that_may_press_it() -> None:
    assert reason_missing(Right.LEAD) == "Needs the role lead or administrator."
    assert Right.LEAD.permission == "access.lead"

"""Roles: who sees what, and who may do what."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from ergon_site.access.core.roles import ROLES, Right
from ergon_site.access.models import AuditEntry
from tests.factories import ApiClientFactory

pytestmark = [pytest.mark.django_db, pytest.mark.once]

PAGES = {
    "/admin/": Right.VIEW,
    "/admin/access/apiclient/": Right.ADMINISTER,
    "/admin/access/apiclient/add/": Right.ADMINISTER,
    "/admin/auth/user/": Right.ADMINISTER,
    "/admin/auth/user/add/": Right.ADMINISTER,
    "/admin/access/role/": Right.ADMINISTER,
    "/admin/access/auditentry/": Right.AUDIT,
    "/admin/access/auditentry/export.csv": Right.AUDIT,
}


def test_the_migration_gives_each_role_the_rights_that_the_code_names() -> None:
    given = {
        role.name: set(role.permissions.values_list("codename", flat=True))
        for role in Group.objects.prefetch_related("permissions")
    }
    assert given == {name: {right.value for right in rights} for name, rights in ROLES.items()}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_opens_exactly_its_pages(client: Client, hire: Callable[[str], User], role: str) -> None:
    client.force_login(hire(role))
    for page, right in PAGES.items():
        expected = 200 if right in ROLES[role] else 403
        assert client.get(page).status_code == expected, page


@pytest.mark.parametrize("role", ROLES)
def test_the_menu_offers_only_what_the_role_opens(client: Client, hire: Callable[[str], User], role: str) -> None:
    client.force_login(hire(role))
    home = client.get("/admin/").content.decode()
    for page in ("/admin/access/apiclient/", "/admin/auth/user/", "/admin/access/auditentry/"):
        assert (f'href="{page}"' in home) == (PAGES[page] in ROLES[role])


def test_strangers_are_asked_to_log_in(client: Client) -> None:
    for page in PAGES:
        answer = client.get(page)
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith("/admin/login/")


def test_a_person_without_a_role_is_told_so(client: Client, hire: Callable[[str], User]) -> None:
    client.force_login(hire("newcomer"))
    assert "You have no role yet" in client.get("/admin/").content.decode()


def test_an_administrator_cannot_rise_above_themselves(
    client: Client, hire: Callable[[str], User], administrator: User
) -> None:
    boss = hire("administrator")
    client.force_login(boss)
    form = {"username": boss.username, "is_active": "on", "is_staff": "on", "is_superuser": "on"}
    client.post(f"/admin/auth/user/{boss.pk}/change/", form)
    assert not User.objects.get(pk=boss.pk).is_superuser
    assert client.post(f"/admin/auth/user/{administrator.pk}/change/", form).status_code == 403
    assert client.get(f"/admin/auth/user/{administrator.pk}/password/").status_code == 403


def permission(name: str) -> Permission:
    app, _, codename = name.partition(".")
    return Permission.objects.get(content_type__app_label=app, codename=codename)


def test_an_administrator_gives_no_group_of_the_project_with_rights_that_they_lack(
    client: Client, hire: Callable[[str], User]
) -> None:
    boss, viewer = hire("administrator"), Group.objects.get(name="viewer")
    payroll, named = Group.objects.create(name="payroll"), Group.objects.create(name="named in code")
    payroll.permissions.add(permission("auth.delete_user"))
    client.force_login(boss)
    page = f"/admin/auth/user/{boss.pk}/change/"
    shown = client.get(page).content.decode()
    assert ("viewer" in shown, "payroll" in shown, "named in code" in shown) == (True, False, False)
    form = {"username": boss.username, "is_active": "on", "is_staff": "on"}
    own = boss.groups.get()
    for group in (payroll, named):
        answer = client.post(page, {**form, "groups": [own.pk, group.pk]})
        assert "Select a valid choice" in answer.content.decode()
    boss.groups.add(named)
    assert client.post(page, {**form, "groups": [own.pk, viewer.pk]}).status_code == 302
    assert set(boss.groups.all()) == {own, viewer, named}


@pytest.mark.parametrize("account", ["active", "deactivated"])
@pytest.mark.parametrize("given", ["to a group", "to the person"])
def test_an_administrator_edits_nobody_who_may_what_they_may_not(
    browse: Client, hire: Callable[[str], User], account: str, given: str
) -> None:
    person = hire("viewer")
    client = Client()
    client.force_login(hire("administrator"))
    pages = [f"/admin/auth/user/{person.pk}/{page}/" for page in ("change", "password")]
    assert [client.get(page).status_code for page in pages] == [200, 200]
    if given == "to a group":
        group = Group.objects.create(name="payroll")
        group.permissions.add(permission("auth.change_group"))
        person.groups.add(group)
    else:
        person.user_permissions.add(permission("auth.change_group"))
    User.objects.filter(pk=person.pk).update(is_active=account == "active")
    assert [client.post(page, {"username": "x"}).status_code for page in pages] == [403, 403]
    assert [browse.get(page).status_code for page in pages] == [200, 200]


def test_people_are_never_deleted(browse: Client, administrator: User) -> None:
    assert browse.post(f"/admin/auth/user/{administrator.pk}/delete/", {"post": "yes"}).status_code == 403


def test_giving_a_role_is_in_the_audit_log(browse: Client, hire: Callable[[str], User]) -> None:
    person = hire("viewer")
    lead = Group.objects.get(name="lead")
    form = {"username": person.username, "is_active": "on", "is_staff": "on", "groups": [lead.pk]}
    assert browse.post(f"/admin/auth/user/{person.pk}/change/", form).status_code == 302
    entry = AuditEntry.objects.get(action="person.change")
    assert (entry.actor, entry.target) == ("ada", "person viewer")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["roles"], entry.after["roles"]) == (["viewer"], ["lead"])


@pytest.mark.parametrize("number", [10**30, "9" * 5000, -(10**30)])
def test_a_role_whose_number_no_column_takes_is_refused(
    browse: Client, hire: Callable[[str], User], number: Any
) -> None:
    person = hire("viewer")
    form = {"username": person.username, "is_active": "on", "is_staff": "on", "groups": [number]}
    answer = browse.post(f"/admin/auth/user/{person.pk}/change/", form)
    assert (answer.status_code, "is not a valid value" in answer.content.decode()) == (200, True)


def test_a_new_person_is_in_the_audit_log(browse: Client) -> None:
    form = {
        "username": "bob",
        "usable_password": "true",
        "password1": "correct-horse-9",
        "password2": "correct-horse-9",
    }
    assert browse.post("/admin/auth/user/add/", form).status_code == 302
    assert AuditEntry.objects.get(action="person.create").target == "person bob"


def test_clients_are_never_deleted_by_hand(browse: Client) -> None:
    client = ApiClientFactory.create(name="press")
    assert browse.post(f"/admin/access/apiclient/{client.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_person_may_what_their_roles_and_they_themselves_were_given(hire: Callable[[str], User]) -> None:
    person = hire("viewer")
    person.user_permissions.add(Permission.objects.get(codename="operate"))
    fresh = User.objects.get(pk=person.pk)
    assert fresh.has_perm(Right.VIEW.permission)
    assert fresh.has_perm(Right.OPERATE.permission)
    assert not fresh.has_perm(Right.LEAD.permission)
    assert not User(pk=person.pk, is_active=False).has_perm(Right.VIEW.permission)

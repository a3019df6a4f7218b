"""Users of the console and their roles."""

from typing import Any, ClassVar

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.forms import ReadOnlyPasswordHashWidget
from django.contrib.auth.hashers import is_password_usable
from django.contrib.auth.models import Group, Permission, User
from django.db.models import Count, Exists, Model, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat
from django.http import HttpRequest
from django.utils.safestring import mark_safe
from unfold.decorators import display
from unfold.forms import UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from ergon_site.access import audit
from ergon_site.access.console.amendments import AmendingForm
from ergon_site.access.console.cells import UNKNOWN, column
from ergon_site.access.console.detail import ListPage
from ergon_site.access.console.fields import RowsField
from ergon_site.access.console.pages import ConsolePage, actor, registered
from ergon_site.access.console.password_forms import MISMATCH, OtherPasswordForm, ask_again, ask_for_use
from ergon_site.access.core.roles import ROLES, Right
from ergon_site.access.models import Role


class RoleFilter(admin.RelatedFieldListFilter):
    """Filters by group, which the console calls a role."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.title = "role"


AMENDED = ("username", "first_name", "last_name", "email", "is_active", "is_staff", "is_superuser")
USERNAME = "At most 150 letters, digits and @ . + - _"


class NewUserForm(UserCreationForm):
    error_messages: ClassVar = MISMATCH

    class Meta(UserCreationForm.Meta):
        help_texts: ClassVar = {"username": USERNAME}

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        ask_for_use(self)
        ask_again(self, "password2", "Password again")


class PasswordNote(ReadOnlyPasswordHashWidget):
    """Whether there is a password; how it is stored is nobody's concern."""

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, value, attrs)
        return context | {"summary": [{"label": "set" if is_password_usable(value) else "none"}]}


class UserForm(AmendingForm, UserChangeForm):
    def __init__(self, *args: Any, instance: User, **options: Any) -> None:
        present = {name: getattr(instance, name) for name in AMENDED}
        present["groups"] = sorted(group.pk for group in instance.groups.all())
        super().__init__(*args, instance=instance, present=present, **options)
        password = self.fields["password"]
        password.widget = PasswordNote()
        password.help_text = mark_safe('<a class="ergon-link" href="../password/">Change the password</a>')

    class Meta(UserChangeForm.Meta):
        labels: ClassVar = {
            "email": "Email",
            "is_staff": "Console access",
            "is_superuser": "Superuser",
            "date_joined": "Joined",
        }
        help_texts: ClassVar = {
            "username": USERNAME,
            "is_active": "Users are deactivated, not deleted.",
            "is_staff": "Can log in to the console.",
            "is_superuser": "Can do everything, without a role.",
        }

    def clean_groups(self) -> list[int]:
        """The groups that the editor cannot give stay as they are."""
        field: Any = self.fields["groups"]
        offered, chosen = field.queryset, self.cleaned_data["groups"]
        kept = self.instance.groups.exclude(pk__in=offered.values("pk"))
        return sorted({*chosen.values_list("pk", flat=True), *kept.values_list("pk", flat=True)})

    def clean(self) -> dict[str, Any]:
        super().clean()
        return {name: self.amended().get(name, value) for name, value in self.cleaned_data.items()}


@registered(User)
class UsersPage(ListPage, UserAdmin):
    """Users are deactivated, not deleted: the audit log goes on naming them."""

    view_right = edit_right = Right.ADMINISTER
    new_title = "New user"
    actions = None
    found_by = "username"
    form = UserForm
    change_form_before_template = "console/opened.html"
    add_form = NewUserForm
    change_password_form = OtherPasswordForm
    list_display = ("username", "full_name", "roles", "is_active", "seen")
    list_filter: ClassVar = ["is_active", ("groups", RoleFilter)]
    filter_horizontal = ()
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Console", {"fields": ("is_active", "is_staff", "groups", "is_superuser")}),
        ("Seen", {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"fields": ("username", "usable_password", "password1", "password2")}),)
    readonly_fields = ("last_login", "date_joined")
    search_help_text = "Part of a username, a name or an address"
    export_fields = ("username", "first_name", "last_name", "email", "is_active", "is_superuser", "last_login")

    seen = column("last login", lambda person: person.last_login, ordering="last_login", empty_value="never")
    full_name = column("name", lambda person: person.get_full_name() or UNKNOWN)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        users: QuerySet[User] = super().get_queryset(request).prefetch_related("groups")
        return users

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        # Nobody can hand out more than they have.
        return self.readonly_fields if request.user.is_superuser else (*self.readonly_fields, "is_superuser")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        above = isinstance(obj, User) and _is_above(obj, request.user)
        return super().has_change_permission(request, obj) and not above

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        widget = UnfoldAdminCheckboxSelectMultipleWidget()
        label = {"label": "Roles", "help_text": "What this user can do in the console."}
        options |= {"form_class": RowsField, "widget": widget, "queryset": _roles_of(request.user), **label}
        return super().formfield_for_manytomany(db_field, request, **options)

    @display(description="roles")
    def roles(self, person: User) -> str:
        names = ["everything (superuser)"] if person.is_superuser else [group.name for group in person.groups.all()]
        return ", ".join(names) or "none"

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:  # noqa: FBT001
        request.before = _standing(User.objects.get(pk=obj.pk)) if change else None  # type: ignore[attr-defined]
        super().save_model(request, obj, form, change)

    def log_addition(self, request: HttpRequest, obj: User, message: Any) -> Any:
        audit.record(actor=actor(request), action="person.create", target=f"person {obj.username}")

    def log_change(self, request: HttpRequest, obj: User, message: Any) -> Any:
        before = getattr(request, "before", None)
        audit.record(
            actor=actor(request),
            action="person.change",
            target=f"person {before['username'] if before else obj.username}",
            before=before,
            # The page of a password changes nothing else.
            after=_standing(obj) if before else {"password": "changed"},
        )


@registered(Role)
class RolesPage(ConsolePage):
    """Roles come with Ergon; who holds them is set on the user's page."""

    view_right = Right.ADMINISTER
    list_display = ("name", "rights", "users")
    fields = ("name", "rights")
    search_fields = ("name",)
    search_help_text = "Part of a name"
    export_fields = ("name", "user_count")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Role]:
        roles: QuerySet[Role] = super().get_queryset(request)
        return roles.annotate(user_count=Count("user", filter=Q(user__is_active=True)))

    rights = column("rights", lambda role: ", ".join(ROLES.get(role.name, ())).replace("_", " ") or UNKNOWN)
    users = column("active users", lambda role: int(role.user_count), ordering="user_count")


def _is_above(person: User, editor: Any) -> bool:
    """Whether a person may do what an editor may not, or could if their account were active."""
    if editor.is_superuser:
        return False
    return person.is_superuser or _lacked_by(editor).filter(Q(user=person) | Q(group__user=person)).exists()


def _roles_of(editor: Any) -> QuerySet[Group]:
    """The groups that an editor can give: in a project they may be about anything, or named for its own code alone."""
    groups = Group.objects.all()
    if editor.is_superuser:
        return groups
    rights = Permission.objects.filter(group=OuterRef("pk"))
    return groups.filter(Exists(rights), ~Exists(rights.filter(pk__in=_lacked_by(editor).values("pk"))))


def _lacked_by(editor: Any) -> QuerySet[Permission]:
    named = Permission.objects.annotate(name_in_full=Concat("content_type__app_label", Value("."), "codename"))
    return named.exclude(name_in_full__in=editor.get_all_permissions()).order_by()


def _standing(person: User) -> dict[str, Any]:
    roles = sorted(person.groups.values_list("name", flat=True))
    names = {name: getattr(person, name) for name in ("username", "first_name", "last_name", "email")}
    flags = {"active": person.is_active, "staff": person.is_staff, "superuser": person.is_superuser}
    return {**names, **flags, "roles": roles}

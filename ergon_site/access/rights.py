"""The rights of a person, read with one statement instead of Django's two, because every page asks."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import Permission
from django.db.models import Q


class Rights(ModelBackend):
    """Django's own rules: a person has the permissions given to them and those of their roles."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        if not user_obj.is_active or user_obj.is_anonymous or user_obj.is_superuser or obj is not None:
            return super().get_all_permissions(user_obj, obj)
        if not hasattr(user_obj, "_perm_cache"):
            given = Permission.objects.filter(Q(user=user_obj) | Q(group__user=user_obj)).order_by()
            names = given.values_list("content_type__app_label", "codename")
            user_obj._perm_cache = {f"{app}.{name}" for app, name in names}  # noqa: SLF001 (where Django keeps it, too)
        return set(user_obj._perm_cache)  # noqa: SLF001

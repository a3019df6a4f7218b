from django.db import migrations

ROLES = {
    "viewer": ["view"],
    "operator": ["view", "operate"],
    "lead": ["view", "operate", "lead"],
    "policy editor": ["view", "edit_policies"],
    "auditor": ["view", "audit"],
    "administrator": ["view", "operate", "lead", "edit_policies", "audit", "administer"],
}


def create_roles(apps, schema_editor):
    # Django makes permissions after all migrations; the roles need theirs now.
    content_type, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(
        app_label="access", model="consolerights"
    )
    permissions = {
        codename: apps.get_model("auth", "Permission").objects.get_or_create(
            content_type=content_type, codename=codename, defaults={"name": name}
        )[0]
        for codename, name in apps.get_model("access", "ConsoleRights")._meta.permissions
    }
    for name, rights in ROLES.items():
        role, _ = apps.get_model("auth", "Group").objects.get_or_create(name=name)
        role.permissions.add(*(permissions[right] for right in rights))


def remove_roles(apps, schema_editor):
    apps.get_model("auth", "Group").objects.filter(name__in=ROLES).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("access", "0002_audit_log_append_only"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(create_roles, remove_roles)]

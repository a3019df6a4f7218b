from django.db import migrations

RETRY = {"max_attempts": 3, "timeout": 30.0, "backoff": 1.0, "backoff_multiplier": 2.0, "backoff_cap": 60.0}
LOOP = {"concurrency": {"value": 8}, "batch": {"size": 100}}
STEP = {"retry": RETRY}
BODIES = {
    # Work that is due later announces itself by nothing but a poll: a second is late enough.
    ("default", "consumer"): {
        "loop": {**LOOP, "empty_queue": {"backoff": 0.1, "backoff_multiplier": 2.0, "backoff_cap": 1.0}},
        "steps": {"process": STEP, "success": STEP, "exception": STEP},
    },
    ("default-producer", "producer"): {
        "loop": LOOP,
        "steps": {"produce": STEP, "success": STEP, "exception": STEP},
    },
}


def create_policies(apps, schema_editor):
    policies, versions = apps.get_model("engines", "Policy"), apps.get_model("engines", "PolicyVersion")
    for (name, kind), body in BODIES.items():
        policy = policies.objects.create(name=name, kind=kind)
        policy.active = versions.objects.create(
            policy=policy, number=1, body=body, author="migration", reason="Shipped with Ergon"
        )
        policy.save(update_fields=["active"])


class Migration(migrations.Migration):
    dependencies = [("engines", "0002_guards_and_tuning")]

    operations = [migrations.RunPython(create_policies, migrations.RunPython.noop)]

"""How long transactions took, by the minute; and the release that a worker runs."""

from django.db import migrations, models

BUCKETS = 17


class Migration(migrations.Migration):
    dependencies = [("engines", "0012_bulk_operations_of_any_kind")]

    operations = [
        migrations.AddField(
            "worker",
            "release",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The release that it runs: ERGON_RELEASE.",
                max_length=100,
            ),
        ),
        migrations.CreateModel(
            "Durations",
            [
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "pipeline_id", "minute", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("pipeline_id", models.BigIntegerField()),
                ("minute", models.DateTimeField()),
                ("longest", models.FloatField(default=0)),
                *((f"took_{place}", models.BigIntegerField(default=0)) for place in range(BUCKETS)),
            ],
            {"indexes": [models.Index(fields=["minute"], name="engines_durations_minute")]},
        ),
    ]

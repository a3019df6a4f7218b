"""How far each boundary was, minute by minute."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("facts", "0011_plain_help_texts")]

    operations = [
        migrations.CreateModel(
            "BoundarySample",
            [
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "boundary_id", "minute", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("boundary_id", models.BigIntegerField()),
                ("minute", models.DateTimeField()),
                ("newest", models.BigIntegerField(help_text="The offset of the newest fact.")),
                ("reached", models.BigIntegerField(help_text="The offset up to which every reader has the facts.")),
                ("backlog", models.BigIntegerField()),
                ("lag", models.FloatField(help_text="Seconds since the oldest fact of the backlog was written.")),
            ],
            {"indexes": [models.Index(fields=["minute"], name="facts_sample_minute")]},
        ),
    ]

"""What a worker writes down twice, because the first answer was lost, is known by its number."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0013_durations_and_releases")]

    operations = [
        migrations.AddField(
            "deadletter",
            "draft_id",
            models.UUIDField(
                help_text="The failure that it tells of, if recording that may have to be tried again.", null=True
            ),
        ),
        migrations.AddField(
            "worker",
            "last_tally",
            models.BigIntegerField(
                db_default=0, default=0, help_text="The number of its last tally that is counted."
            ),
        ),
    ]

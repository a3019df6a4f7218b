"""A worker that does not know of executors, since it is of the release before, can enrol all the same."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0005_worker_executors")]

    operations = [
        migrations.AlterField(
            model_name="worker",
            name="executors",
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list, help_text='Status of its executors at the last heartbeat.'),
        ),
    ]

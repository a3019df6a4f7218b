"""The payload fields of a pipeline that lists of transactions show."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0008_plain_help_texts")]

    operations = [
        migrations.AddField(
            model_name="pipeline",
            name="summary",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Payload fields that lists of transactions show; without any, the first ones.",
            ),
        ),
    ]

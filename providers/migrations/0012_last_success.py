"""The gate tells when a call last succeeded, so that health can be written after the settlement."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("providers", "0011_fewer_checks")]

    operations = [
        migrations.AddField(
            model_name="gate",
            name="succeeded_at",
            field=models.FloatField(help_text="When the last success was settled.", null=True),
        ),
    ]

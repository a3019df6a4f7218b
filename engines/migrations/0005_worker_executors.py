from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("engines", "0004_waiting_samples"),
    ]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="executors",
            field=models.JSONField(default=list, help_text="What its executors do, told with each heartbeat."),
        ),
    ]

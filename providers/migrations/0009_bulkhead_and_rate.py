"""Running calls where they are limited, and the bucket of a rate limit."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0008_opening_rules'),
    ]

    operations = [
        migrations.AddField(
            model_name='gate',
            name='bucket_full_at',
            field=models.FloatField(help_text="When the rate limit's bucket has all its tokens again.", null=True),
        ),
        migrations.AddField(
            model_name='gate',
            name='running',
            field=models.JSONField(db_default={}, default=dict, help_text="When each running call expires, if the bulkhead is the fleet's."),
        ),
    ]

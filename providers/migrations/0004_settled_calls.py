"""What tells a call from all others, and when a breaker last changed: both are empty for what was before."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0003_plain_help_texts'),
    ]

    operations = [
        migrations.AddField(
            model_name='gate',
            name='turned_at',
            field=models.FloatField(help_text='When the breaker last changed its state.', null=True),
        ),
        migrations.AddField(
            model_name='providerexecutionmetric',
            name='call_id',
            field=models.CharField(blank=True, help_text='The same for all attempts of a call.', max_length=32, null=True),
        ),
    ]

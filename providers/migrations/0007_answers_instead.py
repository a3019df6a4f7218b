"""Answers that stand in for the provider: kept ones, where an answer comes from, and how many there were."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0006_events'),
    ]

    operations = [
        migrations.AddField(
            model_name='providerexecutionmetric',
            name='source',
            field=models.CharField(blank=True, choices=[('provider', 'provider'), ('cache', 'cache'), ('stale', 'stale'), ('fallback', 'fallback')], db_default=models.Value('provider'), help_text="Whose answer it is: all but the provider's stand in for it.", max_length=8, null=True),
        ),
        migrations.AddField(
            model_name='providerminute',
            name='cache_hits',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='providerminute',
            name='fallbacks',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='providerminute',
            name='stale_answers',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.CreateModel(
            name='CachedAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant_id', models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant')),
                ('provider_name', models.CharField(max_length=100, verbose_name='provider')),
                ('capability', models.CharField(max_length=100)),
                ('fingerprint', models.CharField(help_text='SHA-256 of the request.', max_length=64)),
                ('operation', models.CharField(max_length=100)),
                ('answer', models.TextField()),
                ('answered_at', models.FloatField()),
                ('useful_until', models.FloatField(help_text='By the policy of the time; pruned then.')),
            ],
            options={
                'db_table': 'provider_cached_answers',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['useful_until'], name='provider_answer_useful')],
                'constraints': [models.UniqueConstraint(fields=('tenant_id', 'provider_name', 'capability', 'fingerprint'), name='provider_answer_request'), models.CheckConstraint(condition=models.Q(models.Q(('tenant_id', ''), _negated=True), models.Q(('provider_name', ''), _negated=True), models.Q(('capability', ''), _negated=True)), name='provider_answer_named')],
            },
        ),
    ]

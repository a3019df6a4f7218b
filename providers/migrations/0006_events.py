"""Events, written once like attempts and kept as long; and the marks on a gate that tell what a decision has changed."""

import django.db.models.functions.datetime
from django.db import migrations, models

from ergon_site.access.database.append_only import AppendOnlyWhile

IS_KEPT = 'OLD.at >= COALESCE((SELECT max(metrics_before) FROM provider_retention), {earliest})'
IN_TIME = {
    'trigger': 'in_time',
    'condition': {
        'postgresql': IS_KEPT.format(earliest="'-infinity'"),
        'sqlite': IS_KEPT.format(earliest="''"),
    },
    # A function of its own: the one of attempts asks for another column.
    'prefix': 'provider_events',
    'noun': 'event',
    'key': 'id',
    'reason': 'is not old enough',
}


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0005_shared_gates'),
    ]

    operations = [
        migrations.AddField(
            model_name='gate',
            name='held_from',
            field=models.CharField(db_default='', default='', help_text='Likewise of a pause (none, paused) or quota (available).', max_length=9),
        ),
        migrations.AddField(
            model_name='gate',
            name='recorded_exhaustion',
            field=models.FloatField(help_text='The end of the last window whose refusal is an event.', null=True),
        ),
        migrations.AddField(
            model_name='gate',
            name='recorded_pause',
            field=models.FloatField(help_text='The end of the last pause that is an event.', null=True),
        ),
        migrations.AddField(
            model_name='gate',
            name='turned_from',
            field=models.CharField(db_default='', default='', help_text='The state before the last decision, if that changed it.', max_length=9),
        ),
        migrations.CreateModel(
            name='ProviderEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('tenant_id', models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant')),
                ('provider_name', models.CharField(max_length=100, verbose_name='provider')),
                ('capability', models.CharField(max_length=100)),
                ('kind', models.CharField(choices=[('breaker', 'breaker'), ('exhaustion', 'exhaustion'), ('pause', 'pause'), ('override', 'override'), ('quota', 'quota'), ('shadow', 'shadow')], max_length=10)),
                ('from_state', models.CharField(max_length=60, verbose_name='from')),
                ('to_state', models.CharField(max_length=60, verbose_name='to')),
                ('why', models.CharField(blank=True, db_default='', default='', max_length=1000)),
                ('generation', models.BigIntegerField(help_text="The breaker's generation after the change.")),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('until', models.DateTimeField(blank=True, help_text='When the new state ends by itself.', null=True)),
                ('by', models.CharField(blank=True, db_default='', default='', help_text='Empty if nobody asked for it.', max_length=150)),
            ],
            options={
                'verbose_name': 'event',
                'db_table': 'provider_events',
                'ordering': ['-id'],
                'indexes': [models.Index(fields=['tenant_id', 'provider_name', 'capability', '-id'], name='provider_event_capability'), models.Index(fields=['tenant_id', '-id'], name='provider_event_tenant')],
                'constraints': [models.CheckConstraint(condition=models.Q(('kind__in', ['breaker', 'exhaustion', 'pause', 'override', 'quota', 'shadow'])), name='provider_event_kind'), models.CheckConstraint(condition=models.Q(models.Q(('tenant_id', ''), _negated=True), models.Q(('provider_name', ''), _negated=True), models.Q(('capability', ''), _negated=True)), name='provider_event_named')],
            },
        ),
        AppendOnlyWhile("ProviderEvent", **IN_TIME),
    ]

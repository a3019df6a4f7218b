"""What people retire and skip, and message ids that outlive their facts."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ergon_site.access.database.append_only import AppendOnly


class Migration(migrations.Migration):

    dependencies = [
        ('facts', '0009_artifacts_verified_and_pulled'),
    ]

    operations = [
        migrations.AddField(
            model_name='boundary',
            name='alarm_last',
            field=models.BigIntegerField(help_text='The last offset that the alarm names.', null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='alarm_offset',
            field=models.BigIntegerField(help_text='The first offset that the alarm names, if any.', null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='dedupe_days',
            field=models.PositiveIntegerField(blank=True, help_text='Days that message ids are remembered after truncation; empty means 30 more than keep_days.', null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='heard_at',
            field=models.DateTimeField(help_text='When the last handoff from the peer was completed.', null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='removed_offset',
            field=models.BigIntegerField(help_text='Facts below this offset have been removed; empty if none.', null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='retired_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='retired_by',
            field=models.CharField(max_length=150, null=True),
        ),
        migrations.AddField(
            model_name='boundary',
            name='retired_reason',
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name='consumer',
            name='retired_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='consumer',
            name='retired_by',
            field=models.CharField(max_length=150, null=True),
        ),
        migrations.AddField(
            model_name='consumer',
            name='retired_reason',
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name='zone',
            name='retired_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='zone',
            name='retired_by',
            field=models.CharField(max_length=150, null=True),
        ),
        migrations.AddField(
            model_name='zone',
            name='retired_reason',
            field=models.TextField(null=True),
        ),
        migrations.CreateModel(
            name='SkippedFact',
            fields=[
                ('pk', models.CompositePrimaryKey('boundary_id', 'offset', blank=True, editable=False, primary_key=True, serialize=False)),
                ('offset', models.BigIntegerField()),
                ('alarm', models.TextField(help_text='Why it was not received.')),
                ('skipped_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('skipped_by', models.CharField(max_length=150)),
                ('reason', models.TextField()),
                ('boundary', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='skipped', to='facts.boundary')),
            ],
            options={
                'ordering': ['boundary_id', 'offset'],
            },
        ),
        migrations.CreateModel(
            name='RememberedMessage',
            fields=[
                ('pk', models.CompositePrimaryKey('boundary_id', 'message_id', blank=True, editable=False, primary_key=True, serialize=False)),
                ('message_id', models.CharField(max_length=1000)),
                ('offset', models.BigIntegerField()),
                ('digest', models.CharField(max_length=64)),
                ('truncated_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('boundary', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='facts.boundary')),
            ],
            options={
                'indexes': [models.Index(fields=['boundary', 'truncated_at'], name='facts_remembered_age')],
            },
        ),
        AppendOnly("SkippedFact"),
    ]

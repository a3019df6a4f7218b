"""Bulk operations act on rows of any kind, on selected ones too, and count how their replays end."""

import django.db.models.deletion
import django.db.models.expressions
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engines', '0011_policy_rehearsals'),
    ]

    operations = [
        migrations.AddField(
            model_name='bulkitem',
            name='label',
            field=models.CharField(db_default='', default='', help_text='The row as people name it.', max_length=300),
        ),
        migrations.AddField(
            model_name='bulkitem',
            name='outcome',
            field=models.CharField(db_default='', default='', help_text='How its replay ended: succeeded, failed, cancelled or lost; empty while it runs.', max_length=10),
        ),
        migrations.AddField(
            model_name='bulkitem',
            name='target',
            field=models.BigIntegerField(help_text='The key of the row.', null=True),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='cursor',
            field=models.TextField(db_default='', default='', help_text='Where it goes on in the rows of its filter.'),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='dry_run',
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict, help_text='The number of rows that it would act on when it was started, and why others would be skipped.'),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='followed',
            field=models.BigIntegerField(db_default=0, default=0, help_text='The last item whose replay was looked at.'),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='kind',
            field=models.CharField(db_default='dead_letter', default='dead_letter', help_text='The kind of rows it acts on.', max_length=20),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='replays_cancelled',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='replays_failed',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='replays_lost',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Deleted before their end was seen.'),
        ),
        migrations.AddField(
            model_name='bulkoperation',
            name='replays_succeeded',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AlterField(
            model_name='bulkitem',
            name='letter',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='engines.deadletter'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='expected',
            field=models.PositiveIntegerField(help_text='Rows that it concerned when it was started.'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='group',
            field=models.ForeignKey(help_text='The group of dead letters, if it concerns the open ones of a single group.', null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='operations', to='engines.deadlettergroup'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='rate',
            field=models.FloatField(default=10, help_text='Rows per second.'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='verb',
            field=models.CharField(max_length=10),
        ),
        migrations.AddIndex(
            model_name='bulkitem',
            index=models.Index(condition=models.Q(('outcome', ''), ('result', 'done')), fields=['operation', 'id'], name='engines_bulk_runs'),
        ),
        migrations.AddIndex(
            model_name='bulkoperation',
            index=models.Index(condition=models.Q(('done__gt', django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(django.db.models.expressions.CombinedExpression(models.F('replays_succeeded'), '+', models.F('replays_failed')), '+', models.F('replays_cancelled')), '+', models.F('replays_lost'))), ('verb', 'replay')), fields=['id'], name='engines_bulk_followed'),
        ),
    ]

"""Help texts in plain words; the tables stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('engines', '0007_oldest_first'),
    ]

    operations = [
        migrations.AlterField(
            model_name='bulkoperation',
            name='canary',
            field=models.PositiveIntegerField(default=0, help_text='Replay this many first; continue only if they succeed.'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='cap',
            field=models.PositiveIntegerField(help_text='It processes at most this many.'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='expected',
            field=models.PositiveIntegerField(help_text='Open dead letters when it was started.'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='note',
            field=models.TextField(blank=True, help_text='Why it stopped automatically.'),
        ),
        migrations.AlterField(
            model_name='bulkoperation',
            name='rate',
            field=models.FloatField(default=10, help_text='Replays per second.'),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='details',
            field=models.JSONField(default=dict, help_text='Attempts, policy, worker and trace, as far as the source knows them.'),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='payload',
            field=models.JSONField(help_text='Only if no transaction in the database keeps it.', null=True),
        ),
        migrations.AlterField(
            model_name='deadletter',
            name='transaction_id',
            field=models.BigIntegerField(help_text='The transaction, if it is kept in the database.', null=True, unique=True),
        ),
        migrations.AlterField(
            model_name='deadlettergroup',
            name='message',
            field=models.TextField(help_text='Without the parts that vary, such as numbers and ids.'),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='connector',
            field=models.CharField(default='database', help_text='The source of its transactions.', max_length=100),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='executor',
            field=models.CharField(blank=True, help_text='The executor that runs the handlers, instead of a task.', max_length=100),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='is_enabled',
            field=models.BooleanField(default=True, help_text='Served by consumers that are started without pipeline names.'),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='keep_failed_days',
            field=models.PositiveIntegerField(default=90, help_text='Days until failed transactions are pruned.'),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='keep_succeeded_days',
            field=models.PositiveIntegerField(default=7, help_text='Days until succeeded transactions are pruned.'),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='priority',
            field=models.IntegerField(default=0, help_text='For transactions submitted without a priority.'),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='redacted',
            field=models.JSONField(blank=True, default=list, help_text='Payload fields that are hidden until revealed.'),
        ),
        migrations.AlterField(
            model_name='pipeline',
            name='task',
            field=models.CharField(blank=True, help_text='The registered name of the task.', max_length=200),
        ),
        migrations.AlterField(
            model_name='policyversion',
            name='changes',
            field=models.JSONField(default=list, help_text='Changes from the version that was active before.'),
        ),
        migrations.AlterField(
            model_name='schedule',
            name='catch_up',
            field=models.CharField(choices=[('one', 'one run for all missed runs'), ('all', 'every missed run'), ('none', 'no missed run')], default='one', max_length=4),
        ),
        migrations.AlterField(
            model_name='throughput',
            name='seconds',
            field=models.FloatField(default=0, help_text='Seconds spent in handlers, all attempts included.'),
        ),
        migrations.AlterField(
            model_name='transactionrecord',
            name='payload_changes',
            field=models.JSONField(help_text='Changes to the payload of the original.', null=True),
        ),
        migrations.AlterField(
            model_name='transactionrecord',
            name='replay_of',
            field=models.BigIntegerField(help_text='The transaction that this one replays.', null=True),
        ),
        migrations.AlterField(
            model_name='waitingsample',
            name='is_capped',
            field=models.BooleanField(default=False, help_text='Whether there were more than were counted.'),
        ),
        migrations.AlterField(
            model_name='waitingsample',
            name='oldest_age',
            field=models.FloatField(help_text='Seconds since the oldest one was due.', null=True),
        ),
        migrations.AlterField(
            model_name='worker',
            name='executors',
            field=models.JSONField(db_default=models.Value([], models.JSONField()), default=list, help_text='Status of its executors at the last heartbeat.'),
        ),
        migrations.AlterField(
            model_name='worker',
            name='lease',
            field=models.FloatField(help_text='Seconds without a heartbeat after which its transactions are rescued.'),
        ),
    ]

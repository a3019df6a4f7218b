"""Help texts in plain words; the tables stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('facts', '0010_retired_skipped_remembered'),
    ]

    operations = [
        migrations.AlterField(
            model_name='artifact',
            name='damage',
            field=models.CharField(blank=True, choices=[('missing', 'missing'), ('corrupt', 'corrupt')], db_default='', default='', help_text='What was wrong with the stored bytes when they were last read; empty if nothing.', max_length=10),
        ),
        migrations.AlterField(
            model_name='artifact',
            name='is_whole',
            field=models.BooleanField(db_default=True, default=True, help_text='False if the upload may have been interrupted.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='alarm',
            field=models.TextField(blank=True, help_text='Why handoff has stopped until a person decides.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='alarm_last',
            field=models.BigIntegerField(help_text='The last offset that the alarm names.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='alarm_offset',
            field=models.BigIntegerField(help_text='The first offset that the alarm names, if any.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='byte_ceiling',
            field=models.BigIntegerField(blank=True, help_text='Maximum bytes; empty means no limit.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='dedupe_days',
            field=models.PositiveIntegerField(blank=True, help_text='Days that message ids are remembered after truncation; empty means 30 more than keep_days.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='failures',
            field=models.PositiveIntegerField(default=0, help_text='Consecutive failed handoffs.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='first_offset',
            field=models.BigIntegerField(db_default=0, default=0, help_text='The offset of the oldest fact that has not been removed.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='frontier',
            field=models.BigIntegerField(db_default=-1, default=-1, help_text='The forward buffer is complete up to this offset.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='heard_at',
            field=models.DateTimeField(help_text='When the last handoff from the peer was completed.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='held_by',
            field=models.CharField(help_text='The process that forwards this boundary.', max_length=150, null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='held_until',
            field=models.DateTimeField(help_text='When another process may take over.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='keep_days',
            field=models.PositiveIntegerField(default=30, help_text='Facts older than this may be removed once every consumer has confirmed them.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='next_offset',
            field=models.BigIntegerField(db_default=0, default=0, help_text='The offset of the next fact.'),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='removed_offset',
            field=models.BigIntegerField(help_text='Facts below this offset have been removed; empty if none.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='row_ceiling',
            field=models.BigIntegerField(blank=True, help_text='Maximum number of facts; empty means no limit.', null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='source_head',
            field=models.BigIntegerField(help_text="The peer's newest offset, as of its last answer.", null=True),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='source_token_file',
            field=models.CharField(blank=True, help_text="The name of the file with the peer's token.", max_length=500),
        ),
        migrations.AlterField(
            model_name='boundary',
            name='source_url',
            field=models.URLField(blank=True, help_text='The address of the peer to pull from; empty means this database.', max_length=500),
        ),
        migrations.AlterField(
            model_name='consumer',
            name='held_by',
            field=models.CharField(help_text='The worker process that reads as this consumer.', max_length=150, null=True),
        ),
        migrations.AlterField(
            model_name='consumer',
            name='held_until',
            field=models.DateTimeField(help_text='When another process may take over.', null=True),
        ),
        migrations.AlterField(
            model_name='consumer',
            name='started',
            field=models.JSONField(help_text='By offset: how often a fact was started without finishing after a process had died.', null=True),
        ),
    ]

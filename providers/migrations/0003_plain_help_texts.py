"""Help texts in plain words; the tables stay as they are."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0002_policies'),
    ]

    operations = [
        migrations.AlterField(
            model_name='gate',
            name='cooldown_until',
            field=models.FloatField(help_text='The provider requested a pause until this time.', null=True),
        ),
        migrations.AlterField(
            model_name='gate',
            name='decision',
            field=models.CharField(db_default='', default='', help_text='The last decision.', max_length=10),
        ),
        migrations.AlterField(
            model_name='gate',
            name='probes',
            field=models.JSONField(db_default={}, default=dict, help_text='When each running probe expires.'),
        ),
        migrations.AlterField(
            model_name='gate',
            name='retry_tokens',
            field=models.FloatField(help_text='Empty means a full budget.', null=True),
        ),
        migrations.AlterField(
            model_name='gate',
            name='successes',
            field=models.IntegerField(db_default=0, default=0, help_text='Successful probes since it is half open.'),
        ),
        migrations.AlterField(
            model_name='gate',
            name='tenant_id',
            field=models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant'),
        ),
        migrations.AlterField(
            model_name='idempotencyclaim',
            name='fingerprint',
            field=models.CharField(help_text='SHA-256 of the request.', max_length=64),
        ),
        migrations.AlterField(
            model_name='idempotencyclaim',
            name='lease_until',
            field=models.FloatField(help_text='In progress until then, or its answer is repeated until then.'),
        ),
        migrations.AlterField(
            model_name='idempotencyclaim',
            name='tenant_id',
            field=models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant'),
        ),
        migrations.AlterField(
            model_name='idempotencyclaim',
            name='token',
            field=models.CharField(help_text='Only its holder may record the outcome.', max_length=32),
        ),
        migrations.AlterField(
            model_name='outboxletter',
            name='dead_letter_id',
            field=models.BigIntegerField(help_text='The dead letter in the console.', null=True),
        ),
        migrations.AlterField(
            model_name='outboxletter',
            name='failures',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Failed tries to publish it.'),
        ),
        migrations.AlterField(
            model_name='outboxletter',
            name='payload',
            field=models.JSONField(help_text='The message that is published.'),
        ),
        migrations.AlterField(
            model_name='outboxletter',
            name='request',
            field=models.JSONField(default=dict, help_text='The request, for a replay.'),
        ),
        migrations.AlterField(
            model_name='providerexecutionmetric',
            name='policy_version',
            field=models.PositiveIntegerField(blank=True, help_text="The policy version of the call; empty if the provider's class sets the policy.", null=True),
        ),
        migrations.AlterField(
            model_name='providerexecutionmetric',
            name='retry_suppressed',
            field=models.BooleanField(db_default=False, default=False, help_text='Not retried because the retry budget was used up.'),
        ),
        migrations.AlterField(
            model_name='providerexecutionmetric',
            name='tenant_id',
            field=models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant'),
        ),
        migrations.AlterField(
            model_name='providerhealthstate',
            name='execution_rate_1h',
            field=models.FloatField(blank=True, help_text='Success rate of executions, retries included.', null=True),
        ),
        migrations.AlterField(
            model_name='providerhealthstate',
            name='p95_latency_ms_1h',
            field=models.FloatField(blank=True, help_text='Duration of attempts, within 7 %.', null=True),
        ),
        migrations.AlterField(
            model_name='providerhealthstate',
            name='rated_settlement',
            field=models.BigIntegerField(db_default=-1, default=-1, help_text='The last settlement included: older figures never replace newer ones.'),
        ),
        migrations.AlterField(
            model_name='providerhealthstate',
            name='success_rate_1h',
            field=models.FloatField(blank=True, help_text='Success rate of attempts; empty without attempts.', null=True),
        ),
        migrations.AlterField(
            model_name='providerhealthstate',
            name='tenant_id',
            field=models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant'),
        ),
        migrations.AlterField(
            model_name='providerpolicyversion',
            name='changes',
            field=models.JSONField(default=list, help_text='Changes from the version that was active before.'),
        ),
        migrations.AlterField(
            model_name='quotastate',
            name='tenant_id',
            field=models.CharField(help_text='The tenant; usually a UUID.', max_length=100, verbose_name='tenant'),
        ),
    ]

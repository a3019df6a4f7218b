import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

from ergon_site.access.database.append_only import AppendOnly


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0001_initial'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='providerexecutionmetric',
            options={'ordering': ['-id'], 'verbose_name': 'attempt'},
        ),
        migrations.AlterModelOptions(
            name='gate',
            options={'ordering': ['tenant_id', 'provider_name', 'capability'], 'verbose_name': 'capability', 'verbose_name_plural': 'capabilities'},
        ),
        migrations.CreateModel(
            name='ProviderPolicyRow',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ('provider_name', models.CharField(max_length=100, verbose_name='provider')),
                ('capability', models.CharField(max_length=100)),
            ],
            options={
                'verbose_name': 'provider policy',
                'verbose_name_plural': 'provider policies',
                'db_table': 'provider_policies',
                'ordering': ['provider_name', 'capability'],
            },
        ),
        migrations.CreateModel(
            name='ProviderPolicyVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('body', models.JSONField()),
                ('changes', models.JSONField(default=list, help_text='Changes from the version that was active before.')),
                ('author', models.CharField(max_length=150)),
                ('reason', models.TextField()),
                ('created_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'verbose_name': 'provider policy version',
                'db_table': 'provider_policy_versions',
                'ordering': ['-number'],
                'abstract': False,
            },
        ),
        migrations.AddField(
            model_name='providerexecutionmetric',
            name='policy_version',
            field=models.PositiveIntegerField(blank=True, help_text="The policy version of the call; empty if the provider's class sets the policy.", null=True),
        ),
        migrations.AddIndex(
            model_name='providerexecutionmetric',
            index=models.Index(condition=models.Q(('task_execution__isnull', False)), fields=['task_execution'], name='provider_metric_task'),
        ),
        migrations.AddField(
            model_name='providerpolicyversion',
            name='policy',
            field=models.ForeignKey(on_delete=django.db.models.deletion.RESTRICT, related_name='versions', to='providers.providerpolicyrow'),
        ),
        migrations.AddField(
            model_name='providerpolicyrow',
            name='active',
            field=models.OneToOneField(null=True, on_delete=django.db.models.deletion.RESTRICT, related_name='+', to='providers.providerpolicyversion'),
        ),
        migrations.AddConstraint(
            model_name='providerpolicyversion',
            constraint=models.UniqueConstraint(fields=('policy', 'number'), name='providers_providerpolicyversion_number'),
        ),
        migrations.AddConstraint(
            model_name='providerpolicyrow',
            constraint=models.UniqueConstraint(fields=('provider_name', 'capability'), name='provider_policy_of'),
        ),
        migrations.AddConstraint(
            model_name='providerpolicyrow',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('provider_name', ''), _negated=True), models.Q(('capability', ''), _negated=True)), name='provider_policy_named'),
        ),
        AppendOnly("ProviderPolicyVersion"),
    ]

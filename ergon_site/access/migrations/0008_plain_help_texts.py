"""Help texts and names in plain words; the tables stay as they are."""

import django.contrib.auth.models
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0007_failed_logins'),
        ('auth', '0012_alter_user_first_name_max_length'),
    ]

    operations = [
        migrations.CreateModel(
            name='Role',
            fields=[
            ],
            options={
                'proxy': True,
                'default_permissions': (),
                'indexes': [],
                'constraints': [],
            },
            bases=('auth.group',),
            managers=[
                ('objects', django.contrib.auth.models.GroupManager()),
            ],
        ),
        migrations.AlterField(
            model_name='apiclient',
            name='certificate',
            field=models.CharField(blank=True, help_text='Subject or fingerprint of its certificate, exactly as the proxy sends it. Empty: tokens only.', max_length=500, null=True, unique=True),
        ),
        migrations.AlterField(
            model_name='apiclient',
            name='name',
            field=models.CharField(help_text='The name of the calling system.', max_length=100, unique=True),
        ),
        migrations.AlterField(
            model_name='apiclient',
            name='rate',
            field=models.FloatField(blank=True, help_text='Empty means the default rate.', null=True, verbose_name='requests per second'),
        ),
        migrations.AlterField(
            model_name='apiclient',
            name='scopes',
            field=models.JSONField(blank=True, default=list, help_text='What the client may do.'),
        ),
        migrations.AlterField(
            model_name='apiclient',
            name='zones',
            field=models.JSONField(blank=True, default=list, help_text='Zones it may send from.'),
        ),
        migrations.AlterField(
            model_name='apitoken',
            name='digest',
            field=models.CharField(help_text='SHA-256 of the token; the token itself is not stored.', max_length=64),
        ),
        migrations.AlterField(
            model_name='failedlogins',
            name='ends_at',
            field=models.DateTimeField(db_index=True, help_text='When the failures are forgotten.'),
        ),
        migrations.AlterField(
            model_name='failedlogins',
            name='key',
            field=models.CharField(help_text='SHA-256 of the account or address.', max_length=64, primary_key=True, serialize=False),
        ),
        migrations.AlterField(
            model_name='idempotentrequest',
            name='digest',
            field=models.CharField(help_text='SHA-256 of the request.', max_length=64),
        ),
        migrations.AlterField(
            model_name='idempotentrequest',
            name='token',
            field=models.CharField(help_text='Only its holder may store the answer.', max_length=32),
        ),
    ]

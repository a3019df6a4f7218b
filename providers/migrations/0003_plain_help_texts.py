"""Nothing: help texts stand where their fields are made. Databases remember that this has been run."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('providers', '0002_policies'),
    ]

    operations = []

"""Nothing: help texts stand where their fields are made. Databases remember that this has been run."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('facts', '0010_retired_skipped_remembered'),
    ]

    operations = []

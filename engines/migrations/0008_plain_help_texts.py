"""Nothing: help texts stand where their fields are made. Databases remember that this has been run."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('engines', '0007_oldest_first'),
    ]

    operations = []

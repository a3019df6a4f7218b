"""The cancellation of a running transaction is a request."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("engines", "0015_one_letter_of_a_draft")]

    operations = [
        migrations.AddField(
            "transactionrecord",
            "cancel_requested_at",
            models.DateTimeField(help_text="When its end was requested while it ran.", null=True),
        ),
    ]

"""The transaction whose handler appended a fact."""

from django.db import migrations, models

from ergon_site.access.database.operations import AddIndexOnline


class Migration(migrations.Migration):
    # An index is built without a lock outside of a transaction only.
    atomic = False

    dependencies = [("facts", "0012_boundary_samples")]

    operations = [
        migrations.AddField(
            model_name="fact",
            name="transaction_id",
            field=models.CharField(
                help_text="The transaction whose handler appended it.", max_length=200, null=True
            ),
        ),
        AddIndexOnline(
            model_name="fact",
            index=models.Index(
                condition=models.Q(transaction_id__isnull=False),
                fields=["transaction_id", "offset"],
                name="facts_fact_transaction",
            ),
        ),
    ]

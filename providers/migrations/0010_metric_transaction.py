"""The transaction that a call was made for, where its correlation id is another id."""

from django.db import migrations, models

from ergon_site.access.database.operations import AddIndexOnline


class Migration(migrations.Migration):
    # An index is built without a lock outside of a transaction only.
    atomic = False

    dependencies = [("providers", "0009_bulkhead_and_rate")]

    operations = [
        migrations.AddField(
            model_name="providerexecutionmetric",
            name="transaction_id",
            field=models.CharField(
                "transaction",
                blank=True,
                help_text="The transaction that it was made for, if its correlation id is another id.",
                max_length=200,
                null=True,
            ),
        ),
        AddIndexOnline(
            model_name="providerexecutionmetric",
            index=models.Index(
                condition=models.Q(transaction_id__isnull=False),
                fields=["transaction_id"],
                name="provider_metric_transaction",
            ),
        ),
    ]

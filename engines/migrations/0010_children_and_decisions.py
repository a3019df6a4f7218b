"""Indexes: of a transaction what it led to, of a dead-letter group the last decisions."""

from django.db import migrations, models
from django.db.models import Q

from ergon_site.access.database.operations import AddIndexOnline


class Migration(migrations.Migration):
    # An index is built without a lock outside of a transaction only.
    atomic = False

    dependencies = [("engines", "0009_pipeline_summary")]

    operations = [
        AddIndexOnline(
            model_name="transactionrecord",
            index=models.Index(fields=["parent_id", "id"], name="t_children", condition=Q(parent_id__isnull=False)),
        ),
        AddIndexOnline(
            model_name="deadletter",
            index=models.Index(
                fields=["group", "-settled_at"],
                name="engines_letter_settled_at",
                condition=Q(settled_at__isnull=False),
            ),
        ),
    ]

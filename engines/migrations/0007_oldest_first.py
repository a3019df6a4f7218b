from django.db import migrations, models
from django.db.models import F, Q
from django.db.models.lookups import Exact

from ergon_site.access.database.operations import AddIndexOnline


class Migration(migrations.Migration):
    # An index is built without a lock outside of a transaction only.
    atomic = False

    dependencies = [("engines", "0006_worker_executors_default")]

    operations = [
        AddIndexOnline(
            model_name="transactionrecord",
            index=models.Index(
                fields=["pipeline", "available_at", "id"], name="t_age", condition=Q(Exact(F("state") + 0, 0))
            ),
        ),
    ]

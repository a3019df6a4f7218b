"""One dead letter of each draft."""

from django.db import migrations, models

from ergon_site.access.database.operations import AddUniqueOnline


class Migration(migrations.Migration):
    # An index is built without a lock outside of a transaction only.
    atomic = False

    dependencies = [("engines", "0014_drafts_and_tallies")]

    operations = [
        AddUniqueOnline(
            model_name="deadletter",
            constraint=models.UniqueConstraint(
                fields=["draft_id"], name="engines_letter_draft", condition=models.Q(draft_id__isnull=False)
            ),
        ),
    ]

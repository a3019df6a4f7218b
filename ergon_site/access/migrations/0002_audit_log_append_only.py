from django.db import migrations

from ergon_site.access.database.append_only import AppendOnly


class Migration(migrations.Migration):
    dependencies = [("access", "0001_initial")]

    operations = [AppendOnly("auditentry")]

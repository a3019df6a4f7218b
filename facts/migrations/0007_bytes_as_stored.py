"""Buffers count bytes, where they have counted characters before: what they hold is counted anew, once."""

from django.db import migrations

COUNT = """
UPDATE facts_boundary SET stored_bytes = COALESCE(
  (SELECT SUM({octets}) FROM {table} WHERE boundary_id = facts_boundary.id), 0)
 WHERE {condition}
"""
OCTETS = {"postgresql": "OCTET_LENGTH(content)", "sqlite": "LENGTH(CAST(content AS BLOB))"}
# The store buffer counts, or the forward buffer of what comes from a peer.
TABLES = {"facts_fact": "source_url = ''", "facts_forwardedfact": "source_url <> ''"}


def count(apps, schema_editor):
    octets = OCTETS[schema_editor.connection.vendor]
    for table, condition in TABLES.items():
        schema_editor.execute(COUNT.format(octets=octets, table=table, condition=condition), params=None)


class Migration(migrations.Migration):
    dependencies = [("facts", "0006_longer_causes")]

    operations = [migrations.RunPython(count, migrations.RunPython.noop)]

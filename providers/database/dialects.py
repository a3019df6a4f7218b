"""How the databases differ in what the statements of providers say: in the clock, and in what they do with JSON."""

from typing import NamedTuple


class Dialect(NamedTuple):
    clock: str  # seconds since 1970
    clock_of_turn: str  # likewise, once the row is ours: a statement may have waited for it
    greatest: str
    least: str
    empty: str
    how_many: str  # places of running calls that have not lapsed
    probing: str  # likewise of probes; a clock that was set back keeps none
    add: str
    drop: str
    live: str  # running calls whose places have not lapsed, none for longer than a lease from now
    is_overlong: str  # whether a running call holds its place for longer than a lease, since the clock was set back
    let_go: str
    first_bucket: str
    next_bucket: str
    listed: str  # values as a list of JSON
    moment: str  # of seconds since 1970, as a column of the visible tables keeps it
    seconds: str  # since 1970, of such a column
    recent: str  # calls by slice, with this one, without slices that are over
    total: str  # of one number over all slices
    is_one: bool = False  # changes of several rows can be one statement


POSTGRESQL = Dialect(
    clock="CAST(EXTRACT(epoch FROM statement_timestamp()) AS double precision)",
    clock_of_turn="CAST(EXTRACT(epoch FROM clock_timestamp()) AS double precision)",
    greatest="GREATEST",
    least="LEAST",
    empty="CAST('{}' AS jsonb)",
    # A function, not a query of its own: that would cost something even where nothing is probed.
    how_many="jsonb_array_length(jsonb_path_query_array({0}, '$.* ? (@ > $now)', jsonb_build_object('now', now)))",
    probing="""jsonb_array_length(jsonb_path_query_array(probes, '$.* ? (@ > $now && @ <= $last)',
      jsonb_build_object('now', now, 'last', now + CAST(%(probe_lease)s AS double precision) + {0})))""",
    add="{0} || jsonb_build_object(CAST(admissions + 1 AS text), now + CAST(%({1})s AS double precision))",
    drop="probes - CAST(%({0}probe)s AS text)",
    live="""COALESCE((SELECT jsonb_object_agg(key, LEAST(CAST(value AS double precision),
        now + CAST(%(call_lease)s AS double precision)))
      FROM jsonb_each(running) WHERE CAST(value AS double precision) > now), CAST('{}' AS jsonb))""",
    is_overlong="""jsonb_path_exists(running, '$.* ? (@ > $last)',
      jsonb_build_object('last', now + CAST(%(call_lease)s AS double precision) + {0}))""",
    let_go="provider_gates.running - CAST(%(place)s AS text)",
    first_bucket="jsonb_build_object(CAST(%(bucket)s AS text), 1)",
    next_bucket="""jsonb_set(m.buckets, ARRAY[CAST(%(bucket)s AS text)],
      to_jsonb(COALESCE(CAST(m.buckets->>CAST(%(bucket)s AS text) AS bigint), 0) + 1))""",
    listed="jsonb_build_array",
    moment="to_timestamp({0})",
    seconds="CAST(EXTRACT(epoch FROM {0}) AS double precision)",
    recent="""(SELECT COALESCE(jsonb_object_agg(one.key, one.value), CAST('{{}}' AS jsonb))
        FROM jsonb_each(recent) AS one
        WHERE CAST(one.key AS bigint) > slice - {slices} AND CAST(one.key AS bigint) < slice + {slices})
        || jsonb_build_object(CAST(slice AS text), jsonb_build_array(
          COALESCE(CAST(recent #>> ARRAY[CAST(slice AS text), '0'] AS bigint), 0) + 1,
          COALESCE(CAST(recent #>> ARRAY[CAST(slice AS text), '1'] AS bigint), 0) + {failed},
          COALESCE(CAST(recent #>> ARRAY[CAST(slice AS text), '2'] AS bigint), 0) + {slow}))""",
    total="(SELECT sum(CAST(one.value->>{0} AS bigint)) FROM jsonb_each(counted) AS one)",
    is_one=True,
)
SQLITE = Dialect(
    clock="((julianday('now') - 2440587.5) * 86400.0)",
    clock_of_turn="((julianday('now') - 2440587.5) * 86400.0)",
    greatest="max",
    least="min",
    empty="'{}'",
    how_many="(SELECT count(*) FROM json_each({0}) WHERE value > now)",
    probing="""(SELECT count(*) FROM json_each(probes)
      WHERE value > now AND value <= now + CAST(%(probe_lease)s AS double precision) + {0})""",
    add="json_set({0}, '$.\"' || (admissions + 1) || '\"', now + CAST(%({1})s AS double precision))",
    drop="json_remove(probes, '$.\"' || %({0}probe)s || '\"')",
    live="""(SELECT json_group_object(key, min(value, now + CAST(%(call_lease)s AS double precision)))
      FROM json_each(running) WHERE value > now)""",
    is_overlong="""EXISTS (SELECT 1 FROM json_each(running)
      WHERE value > now + CAST(%(call_lease)s AS double precision) + {0})""",
    let_go="json_remove(running, '$.\"' || %(place)s || '\"')",
    first_bucket="json_object(CAST(%(bucket)s AS text), 1)",
    next_bucket="""json_set(m.buckets, '$.\"' || %(bucket)s || '\"',
      COALESCE(json_extract(m.buckets, '$.\"' || %(bucket)s || '\"'), 0) + 1)""",
    listed="json_array",
    # As Django writes them, so that both name a window alike.
    moment="""strftime('%%Y-%%m-%%d %%H:%%M:%%S', floor({0}), 'unixepoch') ||
      CASE WHEN round(({0} - floor({0})) * 1000000) > 0
        THEN printf('.%%06d', min(999999, round(({0} - floor({0})) * 1000000))) ELSE '' END""",
    seconds="(CAST(strftime('%%s', {0}) AS double precision) + CAST(substr({0}, 20) AS double precision))",
    recent="""json_set((SELECT COALESCE(json_group_object(one.key, json(one.value)), '{{}}')
        FROM json_each(recent) AS one
        WHERE CAST(one.key AS integer) > slice - {slices} AND CAST(one.key AS integer) < slice + {slices}),
        '$."' || slice || '"', json_array(
          COALESCE(json_extract(recent, '$."' || slice || '"[0]'), 0) + 1,
          COALESCE(json_extract(recent, '$."' || slice || '"[1]'), 0) + {failed},
          COALESCE(json_extract(recent, '$."' || slice || '"[2]'), 0) + {slow}))""",
    total="(SELECT sum(json_extract(one.value, '$[{0}]')) FROM json_each(counted) AS one)",
)

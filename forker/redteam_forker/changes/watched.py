"""Where to look whether anything but rows changed: catalogs, and what shared ones hold for one database.

Whatever DDL, GRANT, COMMENT, ALTER ... SET or a write to a large object does, it writes a row of one of
these, or removes one. Statistics are not among them: ANALYZE is no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["is_schema_touched", "watched_catalogs"]

_CATALOGS = (
    "pg_aggregate",
    "pg_am",
    "pg_amop",
    "pg_amproc",
    "pg_attrdef",
    "pg_attribute",
    "pg_cast",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_conversion",
    "pg_default_acl",
    "pg_depend",
    "pg_description",
    "pg_enum",
    "pg_event_trigger",
    "pg_extension",
    "pg_foreign_data_wrapper",
    "pg_foreign_server",
    "pg_foreign_table",
    "pg_index",
    "pg_inherits",
    "pg_init_privs",
    "pg_language",
    "pg_largeobject_metadata",
    "pg_namespace",
    "pg_opclass",
    "pg_operator",
    "pg_opfamily",
    "pg_partitioned_table",
    "pg_policy",
    "pg_proc",
    "pg_publication",
    "pg_publication_namespace",
    "pg_publication_rel",
    "pg_range",
    "pg_rewrite",
    "pg_seclabel",
    "pg_sequence",
    "pg_statistic_ext",
    "pg_transform",
    "pg_trigger",
    "pg_ts_config",
    "pg_ts_config_map",
    "pg_ts_dict",
    "pg_ts_parser",
    "pg_ts_template",
    "pg_type",
)

# In a catalog of the whole server other databases write too, and so do we when a fork's role is let in. A row
# whose xmin says nothing of the fork is given that of a row as old as the server: it is only counted.
_OLD = "'2'::xid"
_HERE = "d.datname = current_database()"

# A fork has its template's settings; a baseline has some of them, and one of its own. Those of the fork's
# role are its own affair.
_SETTINGS = r"""(
  SELECT s.xmin FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
  LEFT JOIN pg_roles r ON r.oid = s.setrole CROSS JOIN unnest(s.setconfig) AS entry
  WHERE d.datname = coalesce((SELECT t.datname FROM pg_database t WHERE t.datistemplate
      AND t.datname = regexp_replace(current_database(), '_baseline$', '_template')), current_database())
    AND r.rolname IS DISTINCT FROM current_database()
    AND NOT (current_database() ~ '_baseline$' AND entry = 'default_transaction_read_only=on')
) AS settings"""

# The owner is whoever made the database, and the fork's role was let in by us.
_PRIVILEGES = f"""(
  SELECT CASE WHEN x.grantee = d.datdba THEN {_OLD} ELSE d.xmin END AS xmin
  FROM pg_database d CROSS JOIN aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS x
  LEFT JOIN pg_roles r ON r.oid = x.grantee
  WHERE {_HERE} AND NOT (r.rolname IS NOT DISTINCT FROM current_database()
    AND x.privilege_type IN ('CONNECT', 'TEMPORARY') AND NOT x.is_grantable)
) AS privileges"""

_OWNER = f"""(
  SELECT {_OLD} AS xmin FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba
  WHERE {_HERE} AND (d.datconnlimit >= 0 OR NOT (r.rolsuper OR r.rolcreatedb))
) AS database"""

_NOTES = tuple(
    f"""(
  SELECT n.xmin FROM {catalog} n JOIN pg_database d ON d.oid = n.objoid
  WHERE {_HERE} AND n.classoid = 'pg_database'::regclass
) AS notes"""
    for catalog in ("pg_shdescription", "pg_shseclabel")
)

# A clone has none: they belong to a database by its number.
_SUBSCRIPTIONS = f"""(
  SELECT {_OLD} AS xmin FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid WHERE {_HERE}
) AS subscriptions"""

# The catalog itself is the superuser's alone.
_MAPPINGS = f"""(
  SELECT {_OLD} AS xmin FROM pg_user_mappings m LEFT JOIN LATERAL unnest(m.umoptions) AS entry ON true
) AS mappings"""

# pg_largeobject can be read by superusers, and by whoever may read all data. For others a query that names it
# fails before it runs, so it is named in a text that only those who may run it do: ts_stat runs queries.
_PAGES = """(
  SELECT split_part(found.word, ':', 1)::xid AS xmin
  FROM ts_stat(CASE WHEN has_table_privilege('pg_largeobject', 'SELECT')
    THEN 'SELECT pg_catalog.array_to_tsvector(ARRAY[pg_catalog.concat(xmin, '':'', pg_catalog.count(*))]) '
      'FROM pg_catalog.pg_largeobject GROUP BY xmin'
    ELSE 'SELECT pg_catalog.array_to_tsvector(''{}'')' END) AS found
  CROSS JOIN generate_series(1, split_part(found.word, ':', 2)::int8)
) AS pages"""


def watched_catalogs() -> list[str]:
    """Sources to count rows of, in a session whose search_path is pg_catalog; see `is_schema_touched`."""
    return [
        *(f"pg_catalog.{name}" for name in _CATALOGS),
        _SETTINGS,
        _PRIVILEGES,
        _OWNER,
        *_NOTES,
        _SUBSCRIPTIONS,
        _MAPPINGS,
        _PAGES,
    ]


def is_schema_touched(new: Iterable[int], now: Sequence[int], then: Sequence[int]) -> bool:
    """Whether anything but rows may differ, from rows counted in each of `watched_catalogs`.

    A clone's catalogs are copies too: an untouched one has no row that the fork wrote, and lacks none.

    Args:
        new: rows of the fork that were written since it began.
        now: all rows of the fork.
        then: all rows of the baseline.
    """
    return any(new) or list(now) != list(then)

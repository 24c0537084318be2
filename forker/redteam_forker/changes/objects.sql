-- The frame of the queries that list schema objects; the arms are in the files objects_*.sql.
-- One row for each object that can be altered: what it is, an id that a rename keeps, the id of what it belongs to,
-- its name and its definition. An object of an extension belongs to it. The fork's own role is called <fork>, so that
-- two forks that did the same differ in nothing.
WITH space AS (
  SELECT oid, nspname, nspname IN ('pg_catalog', 'information_schema') AS system
  FROM pg_namespace WHERE nspname !~ '^pg_(toast|temp_|toast_temp_)'
), role AS (
  SELECT oid, rolname, CASE WHEN rolname = current_database() THEN '<fork>' ELSE quote_ident(rolname) END AS name FROM pg_roles
), rel AS (
  SELECT c.*, format('%I.%I', s.nspname, c.relname) AS name, s.nspname, s.system
  FROM pg_class c JOIN space s ON s.oid = c.relnamespace
  WHERE c.relpersistence <> 't' AND (NOT s.system OR c.oid >= 16384)
), member AS (
  SELECT classid, objid, 'extension:' || refobjid AS parent FROM pg_depend WHERE deptype = 'e'
  UNION ALL
  -- What a range type brings along.
  SELECT d.classid, d.objid, 'type:' || coalesce((SELECT g.rngtypid FROM pg_range g WHERE g.rngmultitypid = d.refobjid), d.refobjid)
  FROM pg_depend d WHERE d.deptype = 'i' AND d.refclassid = 'pg_type'::regclass AND d.classid IN ('pg_proc'::regclass, 'pg_cast'::regclass)
    AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = d.classid AND e.objid = d.objid AND e.deptype = 'e')
), object AS (
  -- arms
)
SELECT o.kind, o.id, o.parent, o.name,
  concat_ws(', ', 'owner ' || coalesce(r.name, o.owner::text), nullif(o.definition, '')) AS definition
FROM object o LEFT JOIN role r ON r.oid = o.owner

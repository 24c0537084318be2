-- name: database_state
-- $1: a database's name. What decides how it is dropped; no row: there is none.
SELECT d.datconnlimit AS connection_limit,
       d.datistemplate AS is_template,
       d.datallowconn AS open,
       EXISTS (SELECT FROM pg_prepared_xacts p WHERE p.database = d.datname) AS prepared,
       EXISTS (SELECT FROM pg_replication_slots r WHERE r.database = d.datname AND r.active) AS streamed,
       EXISTS (SELECT FROM pg_subscription s WHERE s.subdbid = d.oid) AS subscribed
FROM pg_database d
WHERE d.datname = $1;

-- name: prepared_transactions
-- Those of this database, and who may end them besides a superuser.
SELECT gid, owner::text AS owner FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared;

-- name: active_slots
-- $1: a database's name. Its logical slots that somebody reads from; the others go with the database.
SELECT slot_name::text AS name, active_pid AS pid FROM pg_replication_slots WHERE database = $1 AND active;

-- name: subscriptions
-- Those of this database.
SELECT subname::text AS name FROM pg_subscription s
JOIN pg_database d ON d.oid = s.subdbid AND d.datname = current_database();

-- name: database_owner
-- $1: a database's name.
SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = $1;

-- name: dead_rows
-- How many dead rows the fullest of the catalogs has that grow with every fork.
SELECT coalesce(max(n_dead_tup), 0)
FROM pg_stat_sys_tables
WHERE schemaname = 'pg_catalog'
  AND relname IN ('pg_auth_members', 'pg_authid', 'pg_database', 'pg_db_role_setting', 'pg_shdepend');

-- name: end_lockers
-- $1: a database's name; $2: an anchored regular expression. Ends the sessions of roles of such names that hold a lock on
-- the database itself, as a role does that changes its own settings for it, and waits until each is gone.
SELECT pg_terminate_backend(a.pid, 10000)
FROM pg_stat_activity a
WHERE a.usename ~ $2
  AND a.pid IN (SELECT k.pid FROM pg_locks k JOIN pg_database d ON d.oid = k.objid AND d.datname = $1
                WHERE k.locktype = 'object' AND k.classid = 'pg_database'::regclass AND k.granted);

-- name: end_session
-- $1, $2: process id and start of a session. Ends it and waits until it is gone.
SELECT pg_terminate_backend(pid, 10000)
FROM pg_stat_activity
WHERE pid = $1 AND backend_start = $2;

-- name: template_state
-- $1: a database's name. Whether it is a finished template, and the facts that were kept with it.
SELECT d.datistemplate AND NOT d.datallowconn AS sealed,
       shobj_description(d.oid, 'pg_database') AS facts
FROM pg_database d
WHERE d.datname = $1;

-- name: template_parts
-- $1: an anchored regular expression. Databases and groups of templates, with what shows whether they are finished.
SELECT datname::text AS name, datallowconn AS open, datconnlimit AS connection_limit,
       datistemplate AND NOT datallowconn AND shobj_description(oid, 'pg_database') IS NOT NULL AS sealed
FROM pg_database
WHERE datname ~ $1
UNION ALL
SELECT rolname::text, false, -1, false FROM pg_roles WHERE rolname ~ $1
ORDER BY name;

-- name: database_settings
-- $1: a database's name; $2: the application's role or null. What a clone of it would lose. The application's own
-- settings, also those that are for every database, become the fork's role's (`''`), since members inherit none.
SELECT found.role, split_part(entry, '=', 1) AS name, substr(entry, strpos(entry, '=') + 1) AS value
FROM pg_database d
CROSS JOIN LATERAL (
  SELECT r.rolname::text AS role, s.setconfig, 1 AS place
  FROM pg_db_role_setting s
  LEFT JOIN pg_roles r ON r.oid = s.setrole
  WHERE s.setdatabase = d.oid
  UNION ALL
  SELECT '', s.setconfig, CASE WHEN s.setdatabase = 0 THEN 2 ELSE 3 END
  FROM pg_db_role_setting s
  JOIN pg_roles r ON r.oid = s.setrole
  WHERE r.rolname = $2 AND s.setdatabase IN (0, d.oid)
) found
CROSS JOIN LATERAL unnest(found.setconfig) AS entry
WHERE d.datname = $1
ORDER BY found.place, found.role NULLS FIRST, name;

-- name: catalogs_with_maps
-- The system's tables of this database that hold rows, quoted, in the order in which to write them anew: doing so leaves
-- dead rows in those that come last. Large objects are data, and stay as they are.
SELECT c.oid::regclass::text AS name
FROM pg_class c
WHERE c.relkind = 'r' AND NOT c.relisshared AND c.relpages > 0
  AND c.relnamespace IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
  AND c.oid NOT IN ('pg_largeobject'::regclass, 'pg_largeobject_metadata'::regclass)
ORDER BY array_position(ARRAY['pg_depend', 'pg_type', 'pg_attribute', 'pg_class'], c.relname::text) NULLS FIRST, c.oid;

-- name: tables_to_analyze
-- The tables that hold rows, quoted, catalogs too, without those that have a foreign table below them.
WITH RECURSIVE above(oid) AS (
  SELECT i.inhparent FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'f'
  UNION SELECT i.inhparent FROM pg_inherits i JOIN above ON above.oid = i.inhrelid
)
SELECT c.oid::regclass::text AS name
FROM pg_class c
WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't' AND NOT c.relisshared
  AND c.oid NOT IN (SELECT oid FROM above) AND c.relname !~ '^pg_toast'
ORDER BY c.oid;

-- name: own_schemas
-- The schemas of this database that are not the system's.
SELECT nspname::text AS name FROM pg_namespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
ORDER BY nspname;

-- name: count_tables
-- Tables of this database that hold rows of their own, outside the system's schemas.
SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema';

-- name: names_like
-- $1: an anchored regular expression. Databases whose name matches it.
SELECT datname::text AS name FROM pg_database WHERE datname ~ $1 ORDER BY datname;

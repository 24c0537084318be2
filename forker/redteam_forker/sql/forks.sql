-- name: fork_facts
-- $1: a fork's role. The first transaction id that is still to be given out, and the databases it may connect to.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS watermark,
       ARRAY(SELECT d.datname::text FROM pg_database d
             WHERE d.datallowconn AND d.datconnlimit <> -2 AND has_database_privilege($1, d.oid, 'CONNECT')
             ORDER BY d.datname) AS reaches;

-- name: busy_sessions
-- $1: a role. Its sessions that are in a transaction or run a statement, and what each is doing.
SELECT pid, backend_start AS began, coalesce(application_name, '') AS application, coalesce(state, '') AS state,
       left(btrim(regexp_replace(coalesce(query, ''), '\s+', ' ', 'g')), 200) AS statement,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS open_s
FROM pg_stat_activity
WHERE usename = $1 AND state IS DISTINCT FROM 'idle'
ORDER BY backend_start, pid;

-- name: busy_within
-- $1: a database. Sessions of whoever it is that are in a transaction or run a statement there.
SELECT count(*) FROM pg_stat_activity
WHERE datname = $1 AND backend_type = 'client backend' AND state IS DISTINCT FROM 'idle';

-- name: end_sessions
-- $1: a role. Ends its sessions and waits until each is gone; one row for each, true if it is.
SELECT pg_terminate_backend(pid, 10000) AS gone FROM pg_stat_activity WHERE usename = $1;

-- name: left_of
-- $1: a name. What still bears it, in words.
SELECT 'database' AS what FROM pg_database WHERE datname = $1
UNION ALL
SELECT 'role' FROM pg_roles WHERE rolname = $1;

-- name: unregistered
-- $1: an anchored regular expression. Databases and roles that look like forks: the database's number, and whether
-- the role has had its time.
SELECT found.name,
       found.oid AS database,
       coalesce(r.rolvaliduntil < clock_timestamp(), false) AS expired
FROM (SELECT datname::text AS name, oid FROM pg_database WHERE datname ~ $1
      UNION ALL
      SELECT rolname::text, NULL FROM pg_roles
      WHERE rolname ~ $1 AND NOT EXISTS (SELECT FROM pg_database d WHERE d.datname = rolname)) found
LEFT JOIN pg_roles r ON r.rolname = found.name
ORDER BY found.name;

-- name: database_age
-- $1: a database's number. Seconds since its files were made; null if it is gone. For superusers.
SELECT extract(epoch FROM clock_timestamp() - (pg_stat_file('base/' || $1::oid || '/PG_VERSION', true)).modification)::float8;

-- name: first_reads
-- In a fork that nobody has been in: looks at its tables and their indexes as whoever names them in a statement does, and
-- up the types, operators and statistics that planning this takes. Reads no row of theirs, runs nothing of the seed's.
SELECT sum(pg_relation_size(found.oid))
FROM (SELECT c.oid
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind IN ('r', 'i') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
      ORDER BY c.oid
      LIMIT 200) found;

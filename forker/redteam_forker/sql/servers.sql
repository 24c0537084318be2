-- name: server_facts
-- What a server is and what our own role may do on it. One row.
SELECT split_part(current_setting('server_version'), ' ', 1) AS version,
       current_setting('server_version_num')::int AS version_num,
       (SELECT system_identifier::text FROM pg_control_system()) AS identity,
       r.rolsuper AS superuser,
       r.rolcreatedb AS createdb,
       r.rolcreaterole AS createrole,
       r.rolbypassrls AS bypassrls,
       pg_is_in_recovery() AS standby,
       coalesce(current_setting('file_copy_method', true), 'copy') = 'clone' AS clone,
       current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections
FROM pg_roles r
WHERE r.rolname = current_user;

-- name: databases_size
-- Bytes of all databases together.
SELECT sum(pg_database_size(oid))::bigint FROM pg_database WHERE datconnlimit <> -2;

-- name: unused_templates
-- $1: the start of this server's own names. Sealed templates without forks, the least recently used first: a session
-- in the baseline and a clone of the template both read the file PG_VERSION of the database. Those times are whole
-- seconds: of two that were used in the same second, the one that was made first goes first.
SELECT t.name, t.baseline, t.facts,
       pg_database_size(t.oid) + coalesce(pg_database_size(b.oid), 0) AS size_bytes
FROM (
  SELECT d.oid, d.datname::text AS name, regexp_replace(d.datname, 'template$', 'baseline') AS baseline,
         regexp_replace(d.datname, 'template$', '') AS stem, shobj_description(d.oid, 'pg_database') AS facts
  FROM pg_database d
  WHERE d.datistemplate AND NOT d.datallowconn AND d.datname ~ ('^' || $1 || '[a-z2-7]{8}_template$')
) t
LEFT JOIN pg_database b ON b.datname = t.baseline AND b.datconnlimit <> -2
CROSS JOIN LATERAL pg_stat_file(format('base/%s/PG_VERSION', coalesce(b.oid, t.oid))) used
WHERE NOT EXISTS (SELECT FROM pg_database f WHERE f.datname ~ ('^' || t.stem || '[a-z2-7]{16}$'))
ORDER BY greatest(used.access, used.modification), t.oid;

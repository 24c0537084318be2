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
       current_setting('max_connections')::int
         - current_setting('superuser_reserved_connections')::int
         - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections
FROM pg_roles r
WHERE r.rolname = current_user;

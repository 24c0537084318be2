-- name: doctor_rights
-- What our own role may do. One row.
SELECT r.rolname::text AS role, r.rolsuper AS superuser, r.rolcreatedb AS createdb, r.rolcreaterole AS createrole
FROM pg_roles r
WHERE r.rolname = current_user;

-- name: doctor_settings
-- The settings that a fork's price depends on.
SELECT name, setting FROM pg_settings
WHERE name IN ('file_copy_method', 'fsync', 'max_connections', 'shared_buffers');

-- name: doctor_sessions
-- How many other clients are connected now.
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid();

-- name: data_directory
-- Where the data lies; no row if our role may not see that.
SELECT setting FROM pg_settings WHERE name = 'data_directory';

-- name: server_started
-- When the server wrote its own process id down, in seconds since 1970: superusers only. Tells whether a directory of
-- that name on this machine is the server's.
SELECT extract(epoch FROM (pg_stat_file('postmaster.pid')).modification)::float8;

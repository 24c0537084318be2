-- name: lifetime
-- $1: seconds. When a role that is made now ends to be valid, by the server's clock, as text.
SELECT (now() + make_interval(secs => $1))::text;

-- name: fork_facts
-- $1: a fork's role. The first transaction id that is still to be given out, and the databases it may connect to.
SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS watermark,
       ARRAY(SELECT d.datname::text FROM pg_database d
             WHERE d.datallowconn AND d.datconnlimit <> -2 AND has_database_privilege($1, d.oid, 'CONNECT')
             ORDER BY d.datname) AS reaches;

-- name: busy_sessions
-- $1: a role. Its sessions that are in a transaction or run a statement.
SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state IS DISTINCT FROM 'idle';

-- name: end_sessions
-- $1: a role. Ends its sessions and waits until each is gone; one row for each, true if it is.
SELECT pg_terminate_backend(pid, 10000) AS gone FROM pg_stat_activity WHERE usename = $1;

-- name: left_of
-- $1: a name. What still bears it, in words.
SELECT 'database' AS what FROM pg_database WHERE datname = $1
UNION ALL
SELECT 'role' FROM pg_roles WHERE rolname = $1;

-- name: guard_capacity
-- How many locks a server has room for at least.
SELECT current_setting('max_locks_per_transaction')::bigint
         * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint);

-- name: guard_reserve
-- $1: how many. Locks of this session's own, on nothing, to be let go when there is no room for others.
SELECT count(pg_advisory_lock((pg_backend_pid()::bigint << 32) | n)) FROM generate_series(1, $1::int) n;

-- name: guard_watch
-- How many locks the sessions of each role hold in the table that all share. Looks at shared memory only: a view would
-- itself take locks, on the catalogs that all databases share.
SELECT a.usesysid::bigint AS role, count(*) AS locks
FROM pg_lock_status() k
JOIN pg_stat_get_activity(NULL) a ON a.pid = k.pid
WHERE NOT k.fastpath AND a.usesysid IS NOT NULL
GROUP BY a.usesysid

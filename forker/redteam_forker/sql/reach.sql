-- name: reachable
-- $1: a role, or null; $2: an anchored regular expression. The databases whose name does not match it and that the role
-- may connect to, and whether it may as everybody does. A role that is not there yet may what everybody may.
SELECT d.datname::text AS name,
       has_database_privilege('public', d.oid, 'CONNECT') AS public,
       d.datname = current_database() AS here
FROM pg_database d
WHERE d.datallowconn AND d.datconnlimit <> -2 AND d.datname !~ $2
  AND has_database_privilege(coalesce((SELECT r.rolname FROM pg_roles r WHERE r.rolname = $1), 'public'),
                             d.oid, 'CONNECT')
ORDER BY d.datname;

-- name: somebodys_own
-- What somebody put into this database, in words; null if it is as PostgreSQL made it. What extensions bring counts as
-- the extension; some that show a role no more than itself do not count.
SELECT coalesce(
  (SELECT 'table ' || c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
   WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
     AND NOT EXISTS (SELECT FROM pg_depend d
                     WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
   ORDER BY c.oid LIMIT 1),
  (SELECT 'function ' || p.oid::regproc::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
   WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
     AND NOT EXISTS (SELECT FROM pg_depend d
                     WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
   ORDER BY p.oid LIMIT 1),
  (SELECT 'extension ' || quote_ident(e.extname) FROM pg_extension e
   WHERE e.extname NOT IN ('pg_stat_statements', 'pg_visibility', 'plpgsql') ORDER BY e.oid LIMIT 1),
  (SELECT 'large object ' || m.oid FROM pg_largeobject_metadata m ORDER BY m.oid LIMIT 1));

-- name: application_role
-- $1: a role. What would let it out of its database or past row-level security. No row: there is no such role.
WITH RECURSIVE member AS (
  SELECT oid, rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls
  FROM pg_roles WHERE rolname = $1
  UNION
  SELECT g.oid, g.rolname, g.rolsuper, g.rolcreaterole, g.rolcreatedb, g.rolreplication, g.rolbypassrls
  FROM member m
  JOIN pg_auth_members a ON a.member = m.oid
  JOIN pg_roles g ON g.oid = a.roleid
)
SELECT array_remove(ARRAY[CASE WHEN r.rolsuper THEN 'a superuser' END,
                          CASE WHEN r.rolcreaterole THEN 'allowed to create roles' END,
                          CASE WHEN r.rolcreatedb THEN 'allowed to create databases' END,
                          CASE WHEN r.rolreplication THEN 'allowed to replicate' END,
                          CASE WHEN r.rolbypassrls THEN 'exempt from row-level security' END], NULL)
         -- Whoever inherits from an owner may drop what it owns, without entering it (P34).
         || ARRAY(SELECT 'the owner of database ' || quote_ident(d.datname)
                  FROM pg_database d JOIN member m ON m.oid = d.datdba ORDER BY 1)
         || ARRAY(SELECT 'the owner of tablespace ' || quote_ident(t.spcname)
                  FROM pg_tablespace t JOIN member m ON m.oid = t.spcowner ORDER BY 1) AS attributes,
       ARRAY(SELECT m.rolname::text FROM member m
             WHERE m.oid <> r.oid
               AND (m.rolsuper OR m.rolcreaterole OR m.rolcreatedb OR m.rolreplication OR m.rolbypassrls
                    OR m.rolname IN ('pg_checkpoint', 'pg_create_subscription', 'pg_execute_server_program',
                                     'pg_read_server_files', 'pg_signal_autovacuum_worker', 'pg_signal_backend',
                                     'pg_use_reserved_connections', 'pg_write_server_files'))
             ORDER BY 1) AS memberships,
       ARRAY(SELECT c.oid::regclass::text FROM pg_class c WHERE c.relowner = r.oid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
             UNION ALL
             SELECT 'schema ' || quote_ident(n.nspname) FROM pg_namespace n
             WHERE n.nspowner = r.oid AND n.nspname !~ '^pg_'
             ORDER BY 1) AS owned
FROM member r
WHERE r.rolname = $1;

-- name: definers_of_superusers
-- The SECURITY DEFINER routines of this database, outside of extensions, that run as a superuser.
SELECT format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)) AS routine
FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_roles r ON r.oid = p.proowner
WHERE p.prosecdef AND r.rolsuper AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  AND NOT EXISTS (SELECT FROM pg_depend d
                  WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
ORDER BY 1;

-- name: missing_roles
-- $1: names. Those that are no role of the cluster, in order.
SELECT wanted.name
FROM unnest($1::text[]) WITH ORDINALITY AS wanted(name, place)
WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = wanted.name)
ORDER BY wanted.place;

-- name: roles_made_for
-- $1: how the comment begins that we gave them; $2: how the template's name goes on; $3: templates that are about to
-- go. Roles whose template is gone, or will be.
SELECT r.rolname::text AS name
FROM (SELECT rolname, shobj_description(oid, 'pg_authid') AS note FROM pg_roles) r
WHERE starts_with(r.note, $1 || $2)
  AND NOT EXISTS (SELECT FROM pg_database d
                  WHERE d.datname = substr(r.note, length($1) + 1) AND d.datname <> ALL ($3::text[]))
ORDER BY r.rolname;

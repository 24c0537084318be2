-- Schemas, extensions, who may do what, comments, settings, and what else a database has.
SELECT 'schema' AS kind, 'schema:' || s.oid AS id, m.parent, quote_ident(s.nspname) AS name, n.nspowner AS owner, NULL AS definition
FROM space s JOIN pg_namespace n ON n.oid = s.oid
LEFT JOIN member m ON m.classid = 'pg_namespace'::regclass AND m.objid = s.oid
WHERE NOT s.system
UNION ALL
SELECT 'extension', 'extension:' || e.oid, NULL, quote_ident(e.extname), e.extowner, format('%s in %s', e.extversion, e.extnamespace::regnamespace)
FROM pg_extension e
UNION ALL
SELECT 'event trigger', 'event trigger:' || e.oid, m.parent, quote_ident(e.evtname), e.evtowner,
  concat_ws(' ', 'on', e.evtevent, 'when tag in ' || array_to_string(e.evttags, ', '), 'execute', e.evtfoid::regprocedure,
    CASE e.evtenabled WHEN 'D' THEN '(disabled)' WHEN 'A' THEN '(always)' WHEN 'R' THEN '(replica)' END)
FROM pg_event_trigger e LEFT JOIN member m ON m.classid = 'pg_event_trigger'::regclass AND m.objid = e.oid
UNION ALL
SELECT 'publication', 'publication:' || p.oid, NULL, quote_ident(p.pubname), p.pubowner,
  concat_ws(', ', CASE WHEN p.puballtables THEN 'all tables' END,
    concat_ws(' ', 'of', CASE WHEN p.pubinsert THEN 'insert' END, CASE WHEN p.pubupdate THEN 'update' END,
      CASE WHEN p.pubdelete THEN 'delete' END, CASE WHEN p.pubtruncate THEN 'truncate' END),
    CASE WHEN p.pubviaroot THEN 'via root' END,
    -- A column of PostgreSQL 18.
    CASE to_jsonb(p)->>'pubgencols' WHEN 's' THEN 'stored generated columns' END,
    (SELECT string_agg(concat_ws(' ', r.prrelid::regclass,
        (SELECT format('(%s)', string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)) FROM pg_attribute a
          WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs::int2[]) HAVING count(*) > 0),
        'where ' || pg_get_expr(r.prqual, r.prrelid)), ', ' ORDER BY r.prrelid::regclass::text)
      FROM pg_publication_rel r WHERE r.prpubid = p.oid),
    (SELECT string_agg('tables in schema ' || n.pnnspid::regnamespace, ', ' ORDER BY n.pnnspid::regnamespace::text)
      FROM pg_publication_namespace n WHERE n.pnpubid = p.oid))
FROM pg_publication p
UNION ALL
-- A clone has none. How it connects may hold a secret.
SELECT 'subscription', 'subscription:' || s.oid, NULL, quote_ident(s.subname), s.subowner,
  concat_ws(', ', CASE WHEN s.subenabled THEN 'enabled' ELSE 'disabled' END, 'to ' || array_to_string(s.subpublications, ', '))
FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid AND d.datname = current_database()
UNION ALL
SELECT 'foreign-data wrapper', 'wrapper:' || w.oid, m.parent, quote_ident(w.fdwname), w.fdwowner,
  concat_ws(', ', 'handler ' || nullif(w.fdwhandler, 0)::regprocedure, 'validator ' || nullif(w.fdwvalidator, 0)::regprocedure,
    'options ' || array_to_string(w.fdwoptions, ' '))
FROM pg_foreign_data_wrapper w LEFT JOIN member m ON m.classid = 'pg_foreign_data_wrapper'::regclass AND m.objid = w.oid
UNION ALL
SELECT 'foreign server', 'server:' || s.oid, m.parent, quote_ident(s.srvname), s.srvowner,
  concat_ws(', ', 'wrapper ' || (SELECT quote_ident(w.fdwname) FROM pg_foreign_data_wrapper w WHERE w.oid = s.srvfdw),
    'type ' || quote_literal(s.srvtype), 'version ' || quote_literal(s.srvversion), 'options ' || array_to_string(s.srvoptions, ' '))
FROM pg_foreign_server s LEFT JOIN member m ON m.classid = 'pg_foreign_server'::regclass AND m.objid = s.oid
UNION ALL
-- Its options hold passwords, so their names must do.
SELECT 'user mapping', 'user mapping:' || u.umid, 'server:' || u.srvid, format('%s on %I', coalesce(r.name, 'public'), u.srvname), NULL,
  'options ' || (SELECT string_agg(split_part(o, '=', 1), ' ' ORDER BY o) FROM unnest(u.umoptions) AS o)
FROM pg_user_mappings u LEFT JOIN role r ON r.oid = u.umuser
UNION ALL
SELECT 'comment', format('comment:%s:%s:%s', d.classoid, d.objoid, d.objsubid), coalesce(place.parent, m.parent), format('%s %s', i.type, i.identity), NULL, d.description
FROM pg_description d
JOIN LATERAL pg_identify_object(d.classoid, d.objoid, d.objsubid) AS i ON i.identity IS NOT NULL
LEFT JOIN member m ON m.classid = d.classoid AND m.objid = d.objoid
CROSS JOIN LATERAL (SELECT CASE d.classoid
    WHEN 'pg_class'::regclass THEN CASE WHEN d.objsubid > 0 THEN format('column:%s.%s', d.objoid, d.objsubid) ELSE 'relation:' || d.objoid END
    WHEN 'pg_proc'::regclass THEN 'function:' || d.objoid WHEN 'pg_type'::regclass THEN 'type:' || d.objoid
    WHEN 'pg_constraint'::regclass THEN 'constraint:' || d.objoid WHEN 'pg_trigger'::regclass THEN 'trigger:' || d.objoid
    WHEN 'pg_policy'::regclass THEN 'policy:' || d.objoid WHEN 'pg_rewrite'::regclass THEN 'rule:' || d.objoid
    WHEN 'pg_namespace'::regclass THEN 'schema:' || d.objoid WHEN 'pg_extension'::regclass THEN 'extension:' || d.objoid
    WHEN 'pg_operator'::regclass THEN 'operator:' || d.objoid WHEN 'pg_cast'::regclass THEN 'cast:' || d.objoid
    WHEN 'pg_statistic_ext'::regclass THEN 'statistics:' || d.objoid WHEN 'pg_event_trigger'::regclass THEN 'event trigger:' || d.objoid
    WHEN 'pg_largeobject'::regclass THEN 'large object:' || d.objoid
  END AS parent) AS place
-- Postgres itself has thousands.
WHERE d.objoid >= 16384 OR d.classoid = 'pg_namespace'::regclass
UNION ALL
SELECT 'comment', 'comment:database', NULL, 'database', NULL, d.description
FROM pg_shdescription d JOIN pg_database b ON b.oid = d.objoid AND b.datname = current_database()
WHERE d.classoid = 'pg_database'::regclass
UNION ALL
SELECT 'security label', format('label:%s:%s:%s:%s', l.classoid, l.objoid, l.objsubid, l.provider), m.parent, format('%s on %s %s', l.provider, i.type, i.identity), NULL, l.label
FROM pg_seclabel l JOIN LATERAL pg_identify_object(l.classoid, l.objoid, l.objsubid) AS i ON i.identity IS NOT NULL
LEFT JOIN member m ON m.classid = l.classoid AND m.objid = l.objoid
UNION ALL
SELECT 'security label', 'label:database:' || l.provider, NULL, l.provider || ' on database', NULL, l.label
FROM pg_shseclabel l JOIN pg_database b ON b.oid = l.objoid AND b.datname = current_database()
WHERE l.classoid = 'pg_database'::regclass
UNION ALL
-- What was granted or revoked: lists that are neither an object's default nor what initdb or its extension gave it.
SELECT 'grant', format('grant:%s:%s', a.parent, a.sub), coalesce(nullif(a.parent, ''), m.parent), a.name, NULL,
  coalesce(nullif(array_to_string(ARRAY(SELECT regexp_replace(item::text, '(^|/)' || coalesce(own.rolname, '=') || '(?==|$)', '\1<fork>', 'g')
    FROM unnest(a.list) AS item ORDER BY 1), ', '), ''), 'nobody')
FROM (
  SELECT 'pg_class'::regclass AS class, c.oid, 0 AS sub, 'relation:' || c.oid AS parent,
    format('%s %I.%I', CASE c.relkind WHEN 'S' THEN 'sequence' WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END,
      s.nspname, c.relname) AS name, c.relacl AS list, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner) AS usual
  FROM pg_class c JOIN space s ON s.oid = c.relnamespace WHERE c.relacl IS NOT NULL AND c.relpersistence <> 't'
  UNION ALL
  SELECT 'pg_class'::regclass, c.oid, a.attnum, format('column:%s.%s', c.oid, a.attnum), format('column %I.%I.%I', s.nspname, c.relname, a.attname), a.attacl, '{}'
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN space s ON s.oid = c.relnamespace
  WHERE a.attacl IS NOT NULL AND c.relpersistence <> 't'
  UNION ALL
  SELECT 'pg_namespace'::regclass, n.oid, 0, 'schema:' || n.oid, format('schema %I', n.nspname), n.nspacl, acldefault('n', n.nspowner)
  FROM pg_namespace n JOIN space s ON s.oid = n.oid WHERE n.nspacl IS NOT NULL
  UNION ALL
  SELECT 'pg_proc'::regclass, p.oid, 0, 'function:' || p.oid, 'function ' || p.oid::regprocedure, p.proacl, acldefault('f', p.proowner)
  FROM pg_proc p WHERE p.proacl IS NOT NULL
  UNION ALL
  SELECT 'pg_type'::regclass, t.oid, 0, 'type:' || t.oid, 'type ' || t.oid::regtype, t.typacl, acldefault('T', t.typowner)
  FROM pg_type t WHERE t.typacl IS NOT NULL
  UNION ALL
  SELECT 'pg_language'::regclass, l.oid, 0, 'language:' || l.oid, format('language %I', l.lanname), l.lanacl, acldefault('l', l.lanowner)
  FROM pg_language l WHERE l.lanacl IS NOT NULL
  UNION ALL
  SELECT 'pg_foreign_data_wrapper'::regclass, w.oid, 0, 'wrapper:' || w.oid, format('foreign-data wrapper %I', w.fdwname), w.fdwacl, acldefault('F', w.fdwowner)
  FROM pg_foreign_data_wrapper w WHERE w.fdwacl IS NOT NULL
  UNION ALL
  SELECT 'pg_foreign_server'::regclass, f.oid, 0, 'server:' || f.oid, format('foreign server %I', f.srvname), f.srvacl, acldefault('S', f.srvowner)
  FROM pg_foreign_server f WHERE f.srvacl IS NOT NULL
  UNION ALL
  SELECT 'pg_largeobject'::regclass, o.oid, 0, 'large object:' || o.oid, 'large object ' || o.oid, o.lomacl, acldefault('L', o.lomowner)
  FROM pg_largeobject_metadata o WHERE o.lomacl IS NOT NULL
  UNION ALL
  SELECT 'pg_default_acl'::regclass, d.oid, 0, '', concat_ws(' ', 'default of', r.name, 'for',
      CASE d.defaclobjtype WHEN 'r' THEN 'tables' WHEN 'S' THEN 'sequences' WHEN 'f' THEN 'functions' WHEN 'T' THEN 'types' WHEN 'n' THEN 'schemas'
        ELSE 'large objects' END, 'in ' || d.defaclnamespace::regnamespace), d.defaclacl,
    CASE WHEN d.defaclnamespace = 0 THEN acldefault(CASE d.defaclobjtype WHEN 'S' THEN 's' ELSE d.defaclobjtype END, d.defaclrole) ELSE '{}' END
  FROM pg_default_acl d JOIN role r ON r.oid = d.defaclrole
) AS a
LEFT JOIN pg_init_privs AS given ON given.classoid = a.class AND given.objoid = a.oid AND given.objsubid = a.sub
LEFT JOIN member m ON m.classid = a.class AND m.objid = a.oid
LEFT JOIN role AS own ON own.name = '<fork>'
WHERE ARRAY(SELECT item::text FROM unnest(a.list) AS item ORDER BY 1)
  <> ARRAY(SELECT item::text FROM unnest(coalesce(given.initprivs, a.usual)) AS item ORDER BY 1)
UNION ALL
-- Who may do what with the database. Its owner is whoever made it, which need not be who made the baseline; the
-- fork's role was let in by us.
SELECT 'grant', 'grant:database:' || who.name, NULL, 'database to ' || who.name, NULL,
  string_agg(x.privilege_type || CASE WHEN x.is_grantable THEN ' with grant option' ELSE '' END, ', ' ORDER BY x.privilege_type)
FROM pg_database d
CROSS JOIN LATERAL aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) AS x
LEFT JOIN role r ON r.oid = x.grantee
CROSS JOIN LATERAL (SELECT CASE WHEN x.grantee = d.datdba THEN 'its owner' ELSE coalesce(r.name, 'public') END AS name) AS who
WHERE d.datname = current_database()
  AND NOT (r.rolname = current_database() AND x.privilege_type IN ('CONNECT', 'TEMPORARY') AND NOT x.is_grantable)
GROUP BY who.name
UNION ALL
SELECT 'database', 'database', NULL, 'database', NULL,
  concat_ws(', ', 'owner ' || CASE WHEN g.rolsuper OR g.rolcreatedb THEN 'an administrator' ELSE r.name END, 'connection limit ' || CASE WHEN d.datconnlimit >= 0 THEN d.datconnlimit END)
FROM pg_database d JOIN role r ON r.oid = d.datdba JOIN pg_roles g ON g.oid = d.datdba WHERE d.datname = current_database()
UNION ALL
-- A fork is given its template's settings; a baseline some of them only, and one of its own.
SELECT 'setting', format('setting:%s:%s', s.setrole, item.name), NULL, concat_ws(' ', coalesce('role ' || r.name, 'database'), item.name), NULL, item.value
FROM pg_database d JOIN pg_db_role_setting s ON s.setdatabase = d.oid LEFT JOIN role r ON r.oid = s.setrole
CROSS JOIN unnest(s.setconfig) AS entry
CROSS JOIN LATERAL (SELECT split_part(entry, '=', 1) AS name, substr(entry, strpos(entry, '=') + 1) AS value) AS item
WHERE d.datname = coalesce((SELECT t.datname FROM pg_database t
    WHERE t.datname = regexp_replace(current_database(), '_baseline$', '_template') AND t.datistemplate), current_database())
  AND r.name IS DISTINCT FROM '<fork>'
  AND NOT (current_database() ~ '_baseline$' AND entry = 'default_transaction_read_only=on')
UNION ALL
SELECT 'large object', 'large object:' || o.oid, NULL, o.oid::text, o.lomowner, NULL
FROM pg_largeobject_metadata o

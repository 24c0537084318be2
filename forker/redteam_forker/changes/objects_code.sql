-- Routines, types, operators and what else changes the meaning of a statement.
SELECT CASE p.prokind WHEN 'p' THEN 'procedure' WHEN 'a' THEN 'aggregate' ELSE 'function' END AS kind, 'function:' || p.oid AS id,
  m.parent, p.oid::regprocedure::text AS name, p.proowner AS owner,
  CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid)
    ELSE concat_ws(', ', 'returns ' || pg_get_function_result(p.oid), 'parallel ' || p.proparallel::text, (
      SELECT concat_ws(', ', 'kind ' || a.aggkind::text, 'sfunc ' || a.aggtransfn::regprocedure, 'stype ' || format_type(a.aggtranstype, NULL),
        'sspace ' || nullif(a.aggtransspace, 0), 'initcond ' || quote_literal(a.agginitval), 'finalfunc ' || nullif(a.aggfinalfn, 0)::regprocedure,
        CASE WHEN a.aggfinalextra THEN 'finalfunc_extra' END, 'finalfunc_modify ' || a.aggfinalmodify::text, 'combinefunc ' || nullif(a.aggcombinefn, 0)::regprocedure,
        'serialfunc ' || nullif(a.aggserialfn, 0)::regprocedure, 'deserialfunc ' || nullif(a.aggdeserialfn, 0)::regprocedure, 'msfunc ' || nullif(a.aggmtransfn, 0)::regprocedure,
        'minvfunc ' || nullif(a.aggminvtransfn, 0)::regprocedure, 'mfinalfunc ' || nullif(a.aggmfinalfn, 0)::regprocedure,
        'mstype ' || CASE WHEN a.aggmtranstype <> 0 THEN format_type(a.aggmtranstype, NULL) END, 'minitcond ' || quote_literal(a.aggminitval),
        'sortop ' || nullif(a.aggsortop, 0)::regoperator)
      FROM pg_aggregate a WHERE a.aggfnoid = p.oid)) END AS definition
FROM pg_proc p JOIN space s ON s.oid = p.pronamespace
LEFT JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
WHERE NOT s.system OR p.oid >= 16384
UNION ALL
SELECT 'type', 'type:' || t.oid, m.parent, t.oid::regtype::text, t.typowner,
  CASE
    WHEN NOT t.typisdefined THEN 'shell'
    WHEN t.typtype = 'e' THEN 'enum ' || coalesce((SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid), '()')
    WHEN t.typtype = 'd' THEN concat_ws(' ', 'domain', format_type(t.typbasetype, t.typtypmod),
      'collate ' || (SELECT nullif(t.typcollation, b.typcollation)::regcollation FROM pg_type b WHERE b.oid = t.typbasetype AND t.typcollation <> 0),
      CASE WHEN t.typnotnull THEN 'not null' END, 'default ' || t.typdefault)
    WHEN t.typtype = 'c' THEN 'composite ' || coalesce((
      SELECT string_agg(concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
        'collate ' || (SELECT nullif(a.attcollation, b.typcollation)::regcollation FROM pg_type b WHERE b.oid = a.atttypid AND a.attcollation <> 0)), ', ' ORDER BY a.attnum)
      FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped), '()')
    WHEN t.typtype = 'r' THEN (SELECT concat_ws(', ', 'range of ' || format_type(g.rngsubtype, NULL),
        'operator class ' || (SELECT format('%I.%I', n.nspname, c.opcname) FROM pg_opclass c JOIN pg_namespace n ON n.oid = c.opcnamespace WHERE c.oid = g.rngsubopc),
        'collate ' || nullif(g.rngcollation, 0)::regcollation, 'canonical ' || nullif(g.rngcanonical, 0)::regprocedure, 'difference ' || nullif(g.rngsubdiff, 0)::regprocedure,
        'multirange ' || g.rngmultitypid::regtype)
      FROM pg_range g WHERE g.rngtypid = t.oid)
    ELSE concat_ws(', ', 'input ' || t.typinput, 'output ' || t.typoutput, 'receive ' || nullif(t.typreceive, 0)::regprocedure, 'send ' || nullif(t.typsend, 0)::regprocedure,
      'typmod in ' || nullif(t.typmodin, 0)::regprocedure, 'typmod out ' || nullif(t.typmodout, 0)::regprocedure, 'analyze ' || nullif(t.typanalyze, 0)::regprocedure,
      'subscript ' || nullif(t.typsubscript, 0)::regprocedure, 'length ' || t.typlen, CASE WHEN t.typbyval THEN 'by value' END, 'alignment ' || t.typalign::text,
      'storage ' || t.typstorage::text, 'category ' || t.typcategory::text, CASE WHEN t.typispreferred THEN 'preferred' END,
      'delimiter ' || t.typdelim::text, 'default ' || t.typdefault, 'collation ' || nullif(t.typcollation, 0)::regcollation)
  END
FROM pg_type t JOIN space s ON s.oid = t.typnamespace LEFT JOIN pg_class c ON c.oid = t.typrelid
LEFT JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
-- Arrays, multiranges and the row types of relations follow from others.
WHERE (NOT s.system OR t.oid >= 16384)
  AND (t.typtype IN ('e', 'd', 'r') OR (t.typtype = 'c' AND c.relkind = 'c')
    OR (t.typtype IN ('b', 'p') AND NOT EXISTS (SELECT FROM pg_type e WHERE e.typarray = t.oid)))
UNION ALL
SELECT 'operator', 'operator:' || o.oid, m.parent, o.oid::regoperator::text, o.oprowner,
  concat_ws(', ', 'function ' || CASE WHEN o.oprcode <> 0 THEN o.oprcode::regprocedure::text ELSE 'none' END, 'returns ' || format_type(nullif(o.oprresult, 0), NULL),
    'commutator ' || nullif(o.oprcom, 0)::regoperator, 'negator ' || nullif(o.oprnegate, 0)::regoperator,
    'restrict ' || nullif(o.oprrest, 0)::regprocedure, 'join ' || nullif(o.oprjoin, 0)::regprocedure, CASE WHEN o.oprcanhash THEN 'hashes' END, CASE WHEN o.oprcanmerge THEN 'merges' END)
FROM pg_operator o JOIN space s ON s.oid = o.oprnamespace
LEFT JOIN member m ON m.classid = 'pg_operator'::regclass AND m.objid = o.oid
WHERE NOT s.system OR o.oid >= 16384
UNION ALL
SELECT 'operator class', 'operator class:' || c.oid, m.parent, format('%I.%I using %I', s.nspname, c.opcname, a.amname), c.opcowner,
  concat_ws(', ', 'for ' || format_type(c.opcintype, NULL), CASE WHEN c.opcdefault THEN 'default' END,
    'family ' || (SELECT format('%I.%I', n.nspname, f.opfname) FROM pg_opfamily f JOIN pg_namespace n ON n.oid = f.opfnamespace WHERE f.oid = c.opcfamily),
    'storage ' || CASE WHEN c.opckeytype <> 0 THEN format_type(c.opckeytype, NULL) END)
FROM pg_opclass c JOIN space s ON s.oid = c.opcnamespace JOIN pg_am a ON a.oid = c.opcmethod
LEFT JOIN member m ON m.classid = 'pg_opclass'::regclass AND m.objid = c.oid
WHERE NOT s.system OR c.oid >= 16384
UNION ALL
-- Also the families of Postgres itself, as far as somebody added to them.
SELECT 'operator family', 'operator family:' || f.oid, m.parent, format('%I.%I using %I', s.nspname, f.opfname, a.amname), f.opfowner,
  concat_ws(', ',
    (SELECT string_agg(format('operator %s %s%s', o.amopstrategy, o.amopopr::regoperator, CASE WHEN o.amopsortfamily <> 0 THEN ' for order by' ELSE '' END), ', '
        ORDER BY o.amopstrategy, o.amopopr::regoperator::text) FROM pg_amop o WHERE o.amopfamily = f.oid AND (NOT s.system OR o.oid >= 16384)),
    (SELECT string_agg(format('function %s (%s, %s) %s', o.amprocnum, format_type(o.amproclefttype, NULL), format_type(o.amprocrighttype, NULL), o.amproc), ', '
        ORDER BY o.amprocnum, format_type(o.amproclefttype, NULL), format_type(o.amprocrighttype, NULL))
      FROM pg_amproc o WHERE o.amprocfamily = f.oid AND (NOT s.system OR o.oid >= 16384)))
FROM pg_opfamily f JOIN space s ON s.oid = f.opfnamespace JOIN pg_am a ON a.oid = f.opfmethod
LEFT JOIN member m ON m.classid = 'pg_opfamily'::regclass AND m.objid = f.oid
WHERE NOT s.system OR f.oid >= 16384
  OR EXISTS (SELECT FROM pg_amop o WHERE o.amopfamily = f.oid AND o.oid >= 16384)
  OR EXISTS (SELECT FROM pg_amproc o WHERE o.amprocfamily = f.oid AND o.oid >= 16384)
UNION ALL
-- A cast has no schema; those of Postgres itself have the oids that initdb gives.
SELECT 'cast', 'cast:' || k.oid, m.parent, format('%s as %s', format_type(k.castsource, NULL), format_type(k.casttarget, NULL)), NULL,
  concat_ws(', ', CASE k.castcontext WHEN 'e' THEN 'explicit' WHEN 'a' THEN 'in assignment' ELSE 'implicit' END,
    CASE k.castmethod WHEN 'f' THEN 'function ' || k.castfunc::regprocedure WHEN 'i' THEN 'by input and output' ELSE 'binary' END)
FROM pg_cast k LEFT JOIN member m ON m.classid = 'pg_cast'::regclass AND m.objid = k.oid
WHERE k.oid >= 16384
UNION ALL
SELECT 'transform', 'transform:' || t.oid, m.parent, format('for %s in %I', format_type(t.trftype, NULL), l.lanname), NULL,
  concat_ws(', ', 'from sql ' || nullif(t.trffromsql, 0)::regprocedure, 'to sql ' || nullif(t.trftosql, 0)::regprocedure)
FROM pg_transform t JOIN pg_language l ON l.oid = t.trflang LEFT JOIN member m ON m.classid = 'pg_transform'::regclass AND m.objid = t.oid
UNION ALL
SELECT 'language', 'language:' || l.oid, m.parent, quote_ident(l.lanname), l.lanowner,
  concat_ws(', ', CASE WHEN l.lanpltrusted THEN 'trusted' END, 'handler ' || nullif(l.lanplcallfoid, 0)::regprocedure,
    'inline ' || nullif(l.laninline, 0)::regprocedure, 'validator ' || nullif(l.lanvalidator, 0)::regprocedure)
FROM pg_language l LEFT JOIN member m ON m.classid = 'pg_language'::regclass AND m.objid = l.oid
UNION ALL
SELECT 'collation', 'collation:' || c.oid, m.parent, format('%I.%I', s.nspname, c.collname), c.collowner,
  (SELECT string_agg(item.key || ' ' || item.value, ', ' ORDER BY item.key) FROM jsonb_each_text(to_jsonb(c)) AS item
    WHERE item.value IS NOT NULL AND item.key NOT IN ('oid', 'collname', 'collnamespace', 'collowner'))
FROM pg_collation c JOIN space s ON s.oid = c.collnamespace
LEFT JOIN member m ON m.classid = 'pg_collation'::regclass AND m.objid = c.oid
WHERE NOT s.system OR c.oid >= 16384
UNION ALL
SELECT 'conversion', 'conversion:' || c.oid, m.parent, format('%I.%I', s.nspname, c.conname), c.conowner,
  concat_ws(', ', CASE WHEN c.condefault THEN 'default' END, 'from ' || pg_encoding_to_char(c.conforencoding), 'to ' || pg_encoding_to_char(c.contoencoding), 'function ' || c.conproc)
FROM pg_conversion c JOIN space s ON s.oid = c.connamespace
LEFT JOIN member m ON m.classid = 'pg_conversion'::regclass AND m.objid = c.oid
WHERE NOT s.system OR c.oid >= 16384
UNION ALL
SELECT 'access method', 'access method:' || a.oid, m.parent, quote_ident(a.amname), NULL, concat_ws(' ', a.amtype::text, 'handler', a.amhandler::text)
FROM pg_am a LEFT JOIN member m ON m.classid = 'pg_am'::regclass AND m.objid = a.oid
UNION ALL
SELECT 'text search configuration', 'text search configuration:' || c.oid, m.parent, format('%I.%I', s.nspname, c.cfgname), c.cfgowner,
  concat_ws(', ', 'parser ' || (SELECT format('%I.%I', n.nspname, p.prsname) FROM pg_ts_parser p JOIN pg_namespace n ON n.oid = p.prsnamespace WHERE p.oid = c.cfgparser),
    (SELECT string_agg(format('%s %s', o.maptokentype, o.mapdict::regdictionary), ', ' ORDER BY o.maptokentype, o.mapseqno) FROM pg_ts_config_map o WHERE o.mapcfg = c.oid))
FROM pg_ts_config c JOIN space s ON s.oid = c.cfgnamespace
LEFT JOIN member m ON m.classid = 'pg_ts_config'::regclass AND m.objid = c.oid
WHERE NOT s.system OR c.oid >= 16384
UNION ALL
SELECT 'text search dictionary', 'text search dictionary:' || d.oid, m.parent, format('%I.%I', s.nspname, d.dictname), d.dictowner,
  concat_ws(', ', 'template ' || (SELECT format('%I.%I', n.nspname, t.tmplname) FROM pg_ts_template t JOIN pg_namespace n ON n.oid = t.tmplnamespace WHERE t.oid = d.dicttemplate), d.dictinitoption)
FROM pg_ts_dict d JOIN space s ON s.oid = d.dictnamespace
LEFT JOIN member m ON m.classid = 'pg_ts_dict'::regclass AND m.objid = d.oid
WHERE NOT s.system OR d.oid >= 16384
UNION ALL
SELECT 'text search parser', 'text search parser:' || p.oid, m.parent, format('%I.%I', s.nspname, p.prsname), NULL,
  concat_ws(', ', p.prsstart::text, p.prstoken::text, p.prsend::text, p.prsheadline::text, p.prslextype::text)
FROM pg_ts_parser p JOIN space s ON s.oid = p.prsnamespace
LEFT JOIN member m ON m.classid = 'pg_ts_parser'::regclass AND m.objid = p.oid
WHERE NOT s.system OR p.oid >= 16384
UNION ALL
SELECT 'text search template', 'text search template:' || t.oid, m.parent, format('%I.%I', s.nspname, t.tmplname), NULL,
  concat_ws(', ', t.tmplinit::text, t.tmpllexize::text)
FROM pg_ts_template t JOIN space s ON s.oid = t.tmplnamespace
LEFT JOIN member m ON m.classid = 'pg_ts_template'::regclass AND m.objid = t.oid
WHERE NOT s.system OR t.oid >= 16384

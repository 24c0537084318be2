-- The schema `before`, and in it a view for each table, in which the rows of a change set are as they were. %(changes)s is
-- the part of a change set that this needs: [{schema, table, key, columns: [[name, type]], old: [row], new: [row]}].
DO %(tag)s
DECLARE
  changes constant jsonb := %(changes)s;
  own name := 'before_own'; -- the fork's own schema `before` is called so from here on, if it has one
  names jsonb;              -- of the views, by oid of the table
  altered oid[] := '{}';
  misfits name[];           -- columns that cannot hold what they held
  misfit name;
  rel record;
  change jsonb;
  columns text;
  typed text;
  old_typed text;
  shown text;
  key_now text;
  key_typed text;
  source text;
  body text;
BEGIN
  IF EXISTS (SELECT FROM pg_namespace WHERE nspname = 'before') THEN
    WHILE EXISTS (SELECT FROM pg_namespace WHERE nspname = own) LOOP
      own := own || '_';
    END LOOP;
    EXECUTE format('ALTER SCHEMA before RENAME TO %%I', own);
  END IF;
  CREATE SCHEMA before;

  -- A name that is too long is cut, here as in a rule. Of several tables that come to one name, the one is shown whose
  -- schema and name it is, else the one of `public`, else the only one; never one of several.
  SELECT coalesce(jsonb_object_agg(oid, alias), '{}') INTO names
  FROM (
    SELECT c.*, min(c.rank) OVER (PARTITION BY c.alias) AS first, count(*) OVER (PARTITION BY c.alias, c.rank) AS equals
    FROM (
      SELECT c.oid, full_name::name AS alias,
        CASE WHEN n.nspname = 'public' THEN 2 WHEN octet_length(full_name) < 64 THEN 1 ELSE 3 END AS rank
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      CROSS JOIN LATERAL (SELECT concat(CASE n.nspname WHEN 'public' THEN '' WHEN own THEN 'before.' ELSE n.nspname || '.' END, c.relname)) AS called(full_name)
      WHERE c.relkind IN ('r', 'p', 'm') AND c.relispopulated AND c.relpersistence <> 't'
        AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    ) AS c
  ) AS named
  WHERE rank = first AND equals = 1;

  FOR rel IN
    WITH RECURSIVE depth AS (
      SELECT c.oid, 0 AS n FROM pg_class c
      WHERE NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid)
      UNION ALL SELECT i.inhrelid, d.n + 1 FROM depth d JOIN pg_inherits i ON i.inhparent = d.oid
    )
    SELECT c.oid, n.nspname, CASE n.nspname WHEN own THEN 'before' ELSE n.nspname END AS space, c.relname, c.relkind, c.relispartition,
      names->>c.oid::text AS alias, (SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = c.oid AND c.relispartition) AS parent
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE names ? c.oid::text
    -- A table's inheritance children come before it, a partitioned table's leaves after it.
    ORDER BY c.relispartition, (SELECT max(d.n) FROM depth d WHERE d.oid = c.oid)
      * CASE WHEN c.relispartition THEN 1 ELSE -1 END, c.oid
  LOOP
    SELECT string_agg(format('%%I', attname), ', ' ORDER BY attnum),
      string_agg(format('(at.image->>%%L)::%%s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
    INTO columns, typed
    FROM pg_attribute WHERE attrelid = rel.oid AND attnum > 0 AND NOT attisdropped;
    CONTINUE WHEN columns IS NULL;
    change := NULL;
    SELECT entry INTO change FROM jsonb_array_elements(changes) AS entry
    WHERE entry->>'schema' = rel.space AND entry->>'table' = rel.relname;
    source := format('%%s%%I.%%I', CASE rel.relkind WHEN 'r' THEN 'ONLY ' END, rel.nspname, rel.relname);
    -- Foreign partitions are somewhere else, and never read.
    IF rel.relkind = 'p' AND EXISTS (SELECT FROM pg_partition_tree(rel.oid) t JOIN pg_class c ON c.oid = t.relid WHERE c.relkind = 'f') THEN
      SELECT format('(%%s) AS here', coalesce(string_agg(format('SELECT %%s FROM ONLY %%I.%%I', columns, n.nspname, c.relname), ' UNION ALL '),
        format('SELECT %%s FROM %%s WHERE false', columns, source)))
      INTO source
      FROM pg_partition_tree(rel.oid) t JOIN pg_class c ON c.oid = t.relid AND c.relkind = 'r' JOIN pg_namespace n ON n.oid = c.relnamespace;
    END IF;
    body := format('SELECT %%s FROM %%s', columns, source);
    IF rel.parent = ANY (altered) THEN
      body := format('SELECT %%s FROM before.%%I WHERE %%s', columns, names->>rel.parent::text, pg_get_partition_constraintdef(rel.oid));
      altered := altered || rel.oid;
    ELSIF change IS NOT NULL THEN
      altered := altered || rel.oid;
      IF jsonb_typeof(change->'key') = 'array' THEN
        SELECT string_agg(format('at.%%I', attname), ', ' ORDER BY attnum),
          string_agg(format('(at.image->>%%L)::%%s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
        INTO key_now, key_typed
        FROM pg_attribute
        WHERE attrelid = rel.oid AND attnum > 0 AND NOT attisdropped AND change->'key' ? attname;
        -- Keys are compared as they print, so that no operator of a type has to be found.
        body := format(
          'SELECT %%s FROM (SELECT %%1$s FROM %%2$s) AS at WHERE ROW(%%3$s)::text NOT IN '
          '(SELECT ROW(%%4$s)::text FROM jsonb_array_elements(%%5$L::jsonb) AS at(image))',
          columns, source, key_now, key_typed, change->'new');
      ELSE
        body := format(
          'SELECT %%1$s FROM (SELECT %%1$s, ROW(%%1$s)::text AS forker_row, '
          'row_number() OVER (PARTITION BY ROW(%%1$s)::text) AS forker_number FROM %%2$s) AS present '
          'LEFT JOIN (SELECT ROW(%%3$s)::text AS forker_row, count(*) AS forker_new '
          'FROM jsonb_array_elements(%%4$L::jsonb) AS at(image) GROUP BY 1) AS written USING (forker_row) '
          'WHERE forker_number > coalesce(forker_new, 0)',
          columns, source, typed, change->'new');
      END IF;
      -- A column whose type was altered may not hold what it held: it is shown as text.
      misfits := '{}';
      old_typed := typed;
      BEGIN
        EXECUTE format('SELECT count(ROW(%%s)) FROM jsonb_array_elements(%%L::jsonb) AS at(image)', typed, change->'old');
      EXCEPTION WHEN OTHERS THEN
        FOR misfit, old_typed IN
          SELECT attname, format('(at.image->>%%L)::%%s', attname, format_type(atttypid, atttypmod))
          FROM pg_attribute WHERE attrelid = rel.oid AND attnum > 0 AND NOT attisdropped
        LOOP
          BEGIN
            EXECUTE format('SELECT count(ROW(%%s)) FROM jsonb_array_elements(%%L::jsonb) AS at(image)', old_typed, change->'old');
          EXCEPTION WHEN OTHERS THEN
            misfits := misfits || misfit;
          END;
        END LOOP;
        SELECT string_agg(CASE WHEN attname = ANY (misfits) THEN format('%%1$I::text AS %%1$I', attname) ELSE format('%%I', attname) END, ', ' ORDER BY attnum),
          string_agg(format(CASE WHEN attname = ANY (misfits) THEN 'at.image->>%%L' ELSE '(at.image->>%%L)::%%s' END, attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
        INTO shown, old_typed
        FROM pg_attribute WHERE attrelid = rel.oid AND attnum > 0 AND NOT attisdropped;
        body := format('SELECT %%s FROM (%%s) AS now', shown, body);
      END;
      body := body || format(' UNION ALL SELECT %%s FROM jsonb_array_elements(%%L::jsonb) AS at(image)', old_typed, change->'old');
    END IF;
    -- What a parent shows of its children is what they were.
    IF rel.relkind = 'r' AND NOT rel.relispartition THEN
      SELECT body || coalesce(string_agg(format(' UNION ALL SELECT %%s FROM before.%%I', columns, names->>c.oid::text), '' ORDER BY c.oid), '')
      INTO body
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
      WHERE i.inhparent = rel.oid AND c.relkind = 'r' AND names ? c.oid::text;
    END IF;
    EXECUTE format('CREATE VIEW before.%%I AS %%s', rel.alias, body);
  END LOOP;

  -- Tables that are gone.
  FOR change IN
    SELECT entry FROM jsonb_array_elements(changes) AS entry
    WHERE to_regclass(format('%%I.%%I', CASE entry->>'schema' WHEN 'before' THEN own ELSE entry->>'schema' END, entry->>'table')) IS NULL
  LOOP
    SELECT string_agg(format('(at.image->>%%L)::%%s AS %%I', pair->>0,
      CASE WHEN to_regtype(pair->>1) IS NULL THEN 'text' ELSE pair->>1 END, pair->>0), ', ' ORDER BY place)
    INTO typed FROM jsonb_array_elements(change->'columns') WITH ORDINALITY AS listed(pair, place);
    EXECUTE format('CREATE VIEW before.%%I AS SELECT %%s FROM jsonb_array_elements(%%L::jsonb) AS at(image)',
      CASE change->>'schema' WHEN 'public' THEN change->>'table' ELSE (change->>'schema') || '.' || (change->>'table') END,
      typed, change->'old');
  END LOOP;
END
%(tag)s

-- A view for each table, in which the rows of a change set are as they were. %(changes)s is the change set's part
-- that this needs: [{schema, table, key, columns: [[name, type]], old: [row], new: [row]}].
DO %(tag)s
DECLARE
  changes constant jsonb := %(changes)s;
  altered oid[] := '{}';
  rel record;
  change jsonb;
  view_name text;
  columns text;
  typed text;
  key_now text;
  key_typed text;
  source text;
  body text;
BEGIN
  FOR rel IN
    WITH RECURSIVE depth AS (
      SELECT c.oid, 0 AS n FROM pg_catalog.pg_class c
      WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid)
      UNION ALL SELECT i.inhrelid, d.n + 1 FROM depth d JOIN pg_catalog.pg_inherits i ON i.inhparent = d.oid
    )
    SELECT c.oid, n.nspname, c.relname, c.relkind, c.relispartition,
      (SELECT i.inhparent FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid AND c.relispartition) AS parent
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'm') AND c.relispopulated AND c.relpersistence <> 't'
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND n.nspname <> 'before'
    -- A table's inheritance children come before it, a partitioned table's leaves after it.
    ORDER BY c.relispartition, (SELECT max(d.n) FROM depth d WHERE d.oid = c.oid)
      * CASE WHEN c.relispartition THEN 1 ELSE -1 END, c.oid
  LOOP
    view_name := CASE rel.nspname WHEN 'public' THEN rel.relname ELSE rel.nspname || '.' || rel.relname END;
    SELECT string_agg(format('%%I', attname), ', ' ORDER BY attnum),
      string_agg(format('(at.image->>%%L)::%%s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
    INTO columns, typed
    FROM pg_catalog.pg_attribute WHERE attrelid = rel.oid AND attnum > 0 AND NOT attisdropped;
    CONTINUE WHEN columns IS NULL;
    SELECT entry INTO change FROM jsonb_array_elements(changes) AS entry
    WHERE entry->>'schema' = rel.nspname AND entry->>'table' = rel.relname;
    source := format('%%s%%I.%%I', CASE rel.relkind WHEN 'r' THEN 'ONLY ' END, rel.nspname, rel.relname);
    body := format('SELECT %%s FROM %%s', columns, source);
    IF rel.parent = ANY (altered) THEN
      SELECT format('SELECT %%s FROM before.%%I WHERE %%s', columns,
        CASE n.nspname WHEN 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END,
        pg_catalog.pg_get_partition_constraintdef(rel.oid))
      INTO body
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = rel.parent;
      altered := altered || rel.oid;
    ELSIF change IS NOT NULL THEN
      altered := altered || rel.oid;
      IF jsonb_typeof(change->'key') = 'array' THEN
        SELECT string_agg(format('at.%%I', attname), ', ' ORDER BY attnum),
          string_agg(format('(at.image->>%%L)::%%s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
        INTO key_now, key_typed
        FROM pg_catalog.pg_attribute
        WHERE attrelid = rel.oid AND attnum > 0 AND NOT attisdropped AND change->'key' ? attname;
        -- Keys are compared as they print, so that no operator of a type has to be found.
        body := format(
          'SELECT %%s FROM %%s AS at WHERE ROW(%%s)::text NOT IN '
          '(SELECT ROW(%%s)::text FROM jsonb_array_elements(%%L::jsonb) AS at(image))',
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
      body := body || format(' UNION ALL SELECT %%s FROM jsonb_array_elements(%%L::jsonb) AS at(image)', typed, change->'old');
    END IF;
    -- What a parent shows of its children is what they were.
    IF rel.relkind = 'r' AND NOT rel.relispartition THEN
      SELECT body || coalesce(string_agg(format(' UNION ALL SELECT %%s FROM before.%%I', columns,
        CASE n.nspname WHEN 'public' THEN c.relname ELSE n.nspname || '.' || c.relname END), '' ORDER BY c.oid), '')
      INTO body
      FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE i.inhparent = rel.oid AND c.relkind = 'r' AND c.relpersistence <> 't';
    END IF;
    EXECUTE format('CREATE VIEW before.%%I AS %%s', view_name, body);
  END LOOP;

  -- Tables that are gone.
  FOR change IN
    SELECT entry FROM jsonb_array_elements(changes) AS entry
    WHERE to_regclass(format('%%I.%%I', entry->>'schema', entry->>'table')) IS NULL
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

-- The types of all columns of tables here, and the types that they are made of: one row each. Only arrays that print as
-- arrays do are arrays.
WITH RECURSIVE used AS (
  SELECT DISTINCT a.atttypid AS oid
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't' AND a.attnum > 0 AND NOT a.attisdropped
    AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
  UNION
  SELECT part.oid
  FROM used u JOIN pg_type t ON t.oid = u.oid
  CROSS JOIN LATERAL (
    SELECT t.typbasetype AS oid WHERE t.typtype = 'd'
    UNION ALL SELECT t.typelem WHERE t.typoutput = 'array_out'::regproc
    UNION ALL SELECT g.rngsubtype FROM pg_range g WHERE t.oid IN (g.rngtypid, g.rngmultitypid)
    UNION ALL SELECT a.atttypid FROM pg_attribute a
      WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
  ) AS part
)
SELECT t.oid, t.typtype::text AS shape,
  CASE WHEN t.typtype = 'd' THEN t.typbasetype END AS base,
  CASE WHEN t.typoutput = 'array_out'::regproc THEN t.typelem END AS element,
  t.typdelim::text AS delimiter,
  (SELECT g.rngsubtype FROM pg_range g WHERE t.oid IN (g.rngtypid, g.rngmultitypid)) AS bound,
  ARRAY(SELECT a.atttypid FROM pg_attribute a
    WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum) AS fields
FROM used u JOIN pg_type t ON t.oid = u.oid

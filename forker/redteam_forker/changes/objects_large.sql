-- What is in each large object: its size in bytes and a hash. Bytes that were never written read as zeros, so pages are
-- hashed without the zeros at their ends, and empty ones not at all.
SELECT 'large object:' || l.loid AS id,
  max(l.pageno::int8 * (current_setting('block_size')::int8 / 4) + length(l.data)) AS size,
  encode(sha256(coalesce(string_agg(int4send(l.pageno) || sha256(rtrim(l.data, '\x00'::bytea)), ''::bytea ORDER BY l.pageno)
    FILTER (WHERE rtrim(l.data, '\x00'::bytea) <> ''::bytea), ''::bytea)), 'hex') AS hash
FROM pg_largeobject l
GROUP BY l.loid

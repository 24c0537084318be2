-- Every shape of table that Postgres has; zoo_wide.py says how to write to each.
-- What stands under a marker is left out on a server that lacks what the marker names.

-- only where: always
CREATE SCHEMA other;
CREATE SCHEMA "Ev""il; --";
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE DOMAIN amount AS numeric(12, 2) CHECK (VALUE >= 0);
CREATE DOMAIN fee AS amount;
CREATE DOMAIN document AS jsonb;
CREATE TYPE spot AS (street text, weight numeric, feeling mood);
CREATE TYPE trip AS (name text, stops spot[], during int4range);
CREATE TYPE floatrange AS RANGE (subtype = float8);

CREATE TABLE single (id int PRIMARY KEY, v text, n numeric);
INSERT INTO single SELECT g, 'v' || g % 5, g + 0.50 FROM generate_series(1, 60) g;
CREATE TABLE composite (a int, b text, v int, PRIMARY KEY (b, a));
INSERT INTO composite SELECT g % 7, 'b' || g / 7, g FROM generate_series(1, 30) g;
CREATE TABLE keyless (a int, b text, n numeric);
INSERT INTO keyless SELECT g % 4, 'b' || g % 3, g % 2 FROM generate_series(1, 24) g;
INSERT INTO keyless VALUES (NULL, NULL, NULL), (NULL, '', 1.0), (NULL, '', 1.00);
CREATE TABLE coded (id int, code text NOT NULL, loose text UNIQUE, v int);
CREATE UNIQUE INDEX coded_code ON coded (code) INCLUDE (v);
CREATE UNIQUE INDEX coded_some ON coded (id) WHERE v > 3;
INSERT INTO coded SELECT g, 'c' || g, nullif('l' || g % 9, 'l0'), g FROM generate_series(1, 8) g;
CREATE TABLE halfkeyed (id int NOT NULL, v text, w int);
CREATE UNIQUE INDEX ON halfkeyed (id) WHERE w > 0;
CREATE UNIQUE INDEX ON halfkeyed ((id + w));
CREATE UNIQUE INDEX ON halfkeyed (v) NULLS NOT DISTINCT;
INSERT INTO halfkeyed SELECT g % 3, 'v' || g, -100 * g FROM generate_series(1, 9) g;
CREATE TABLE numeric_key (k numeric PRIMARY KEY, v text);
INSERT INTO numeric_key SELECT g + 0.0, 'v' FROM generate_series(1, 9) g;
CREATE TABLE text_key (k text COLLATE "C" PRIMARY KEY, v text);
INSERT INTO text_key VALUES ('', 'empty'), (' ', 'blank'), (',', '"'), ('"', ','), ('\', '\N'), ('(', ')'), ('NULL', 'NULL'),
  (E'\n\t', E'\r'), ('ü€😀', 'é');
CREATE TABLE odd_keys (b bytea, d date, f float8, m mood, PRIMARY KEY (b, d, f, m), v text);
INSERT INTO odd_keys SELECT '\xdead', date '2026-01-01' + g, g / 10.0, 'sad', 'v' FROM generate_series(0, 6) g;
CREATE TABLE ranked (place int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, name text);
INSERT INTO ranked SELECT g, 'name ' || g FROM generate_series(1, 8) g;
CREATE TABLE void ();
INSERT INTO void DEFAULT VALUES; INSERT INTO void DEFAULT VALUES;
CREATE TABLE only_text (v text);
INSERT INTO only_text VALUES (NULL), (''), ('x'), ('x');
CREATE TABLE nothing (id int PRIMARY KEY, v text);
CREATE TABLE many (id int PRIMARY KEY, v text, n int);
INSERT INTO many SELECT g, 'v' || g, g FROM generate_series(1, 1500) g;
CREATE TABLE hot (id int PRIMARY KEY, v text, hits int) WITH (fillfactor = 40);
INSERT INTO hot SELECT g, rpad('v' || g, 100), 0 FROM generate_series(1, 100) g;
CREATE TABLE paged (id int PRIMARY KEY, body char(900));
INSERT INTO paged SELECT g, 'p' || g FROM generate_series(1, 60) g;
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, v text);
INSERT INTO unlogged SELECT g, 'u' FROM generate_series(1, 9) g;
CREATE TABLE dropped (id int PRIMARY KEY, gone text, v text, gone_too numeric);
INSERT INTO dropped SELECT g, 'gone', 'v', g FROM generate_series(1, 9) g;
ALTER TABLE dropped DROP gone, DROP gone_too;
INSERT INTO dropped VALUES (10, 'later');
CREATE TABLE grown (id int PRIMARY KEY, v text);
INSERT INTO grown SELECT g, 'v' FROM generate_series(1, 9) g;
ALTER TABLE grown ADD extra int DEFAULT 7, ADD more text DEFAULT 'm', ADD blank numeric;
CREATE TABLE booked (room int, during int4range, EXCLUDE USING gist (during WITH &&));
INSERT INTO booked SELECT g, int4range(g * 10, g * 10 + 5) FROM generate_series(1, 6) g;
CREATE TABLE "Ev""il; --"."ta ble'; $$" (
  "select" int PRIMARY KEY, "a""b" text, "image" text, "writer" int, "hash" text, "zz" int, "$1" text, "Ümlaut %s {0}" text
);
INSERT INTO "Ev""il; --"."ta ble'; $$" SELECT g, '"', ',', g, '(', g, '\', ')' FROM generate_series(1, 9) g;
CREATE TABLE public.pg_class (oid int PRIMARY KEY, relname text);
INSERT INTO public.pg_class VALUES (1, 'not what it seems');

CREATE TABLE ranged (id int, at date, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE ranged_2025 PARTITION OF ranged FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE ranged_2026 PARTITION OF ranged FOR VALUES FROM ('2026-01-01') TO ('2027-01-01') PARTITION BY LIST (id);
CREATE TABLE ranged_2026_few PARTITION OF ranged_2026 FOR VALUES IN (1, 2, 3);
CREATE TABLE ranged_2026_rest PARTITION OF ranged_2026 DEFAULT;
CREATE TABLE ranged_rest PARTITION OF ranged DEFAULT;
INSERT INTO ranged SELECT g, date '2024-06-01' + 90 * g, 'r' || g FROM generate_series(1, 14) g;
CREATE TABLE hashed (id int PRIMARY KEY, v text) PARTITION BY HASH (id);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE hashed_1 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO hashed SELECT g, 'h' FROM generate_series(1, 20) g;
CREATE TABLE listed (id int, part int, v text, n numeric) PARTITION BY LIST (part);
CREATE TABLE listed_0 PARTITION OF listed FOR VALUES IN (0);
CREATE TABLE listed_1 (n numeric, gone int, v text, part int, id int);
INSERT INTO listed_1 SELECT g, g, 'l', 1, g FROM generate_series(21, 25) g;
ALTER TABLE listed_1 DROP gone;
ALTER TABLE listed ATTACH PARTITION listed_1 FOR VALUES IN (1);
CREATE TABLE listed_rest PARTITION OF listed DEFAULT;
CREATE TABLE listed_spare (LIKE listed);
INSERT INTO listed SELECT g, g % 4, 'l', g FROM generate_series(1, 16) g;
INSERT INTO listed_spare VALUES (90, 9, 'spare', 9), (91, 9, 'spare', 9);
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE child (extra int, PRIMARY KEY (id)) INHERITS (parent);
CREATE TABLE grandchild (deep numeric) INHERITS (child);
CREATE TABLE orphan (id int NOT NULL, v text);
INSERT INTO parent SELECT g, 'p' FROM generate_series(1, 5) g;
INSERT INTO child SELECT g, 'c', g FROM generate_series(6, 10) g;
INSERT INTO grandchild SELECT g % 3 + 11, 'g', g, g FROM generate_series(1, 5) g;
INSERT INTO orphan VALUES (1, 'o');

CREATE TABLE toasted (id int PRIMARY KEY, body text, kept text, note text);
ALTER TABLE toasted ALTER body SET STORAGE EXTERNAL, ALTER kept SET STORAGE MAIN;
INSERT INTO toasted SELECT g, (SELECT string_agg(md5(g || '.' || i), '') FROM generate_series(1, 200) i), repeat('kept', 600), 'n'
FROM generate_series(1, 5) g;
CREATE TABLE toasted_bag (body text, small int);
INSERT INTO toasted_bag SELECT (SELECT string_agg(md5(g % 2 || '.' || i), '') FROM generate_series(1, 300) i), g
FROM generate_series(1, 4) g;
CREATE TABLE made (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED);
INSERT INTO made (a) SELECT g FROM generate_series(1, 9) g;
CREATE TABLE served (id serial PRIMARY KEY, again int GENERATED BY DEFAULT AS IDENTITY (START 100 INCREMENT 10), v text);
INSERT INTO served (v) SELECT 's' FROM generate_series(1, 4) g;
CREATE SEQUENCE other.numbers START 5;
CREATE TABLE docs (id int PRIMARY KEY, j json, jb jsonb, x text, d document);
INSERT INTO docs SELECT g, '{"a": 1, "b": [1.0]}', jsonb_build_object('n', g, 'deep', '[1.50, {"x": null}]'::jsonb), '<a/>', '{"n": 1.0}'
FROM generate_series(1, 6) g;
CREATE TABLE doc_bag (j json, n numeric);
INSERT INTO doc_bag VALUES ('{"a": 1}', 1.0), ('{"a":1.0}', 1), ('null', NULL), (NULL, NULL), ('[]', 0.0);
CREATE TABLE lists (id int PRIMARY KEY, ints int[], nums numeric[], grid numeric[], words text[], docs jsonb[], moods mood[]);
INSERT INTO lists SELECT g, ARRAY[g, NULL, 3], ARRAY[1.0, g], '{{1,2.0},{3,4}}', ARRAY['a', '', 'NULL', NULL, '"', ','], ARRAY['{"a": 1.0}'::jsonb],
  ARRAY['sad', NULL]::mood[] FROM generate_series(1, 6) g;
CREATE TABLE spans (
  id int PRIMARY KEY, i int4range, n numrange, t tstzrange, f floatrange, mi int4multirange, mn nummultirange
);
INSERT INTO spans SELECT g, int4range(g, g + 2), numrange(1.0, 2.50), tstzrange('2026-01-01 00:00Z', NULL), floatrange(0.1, 0.2),
  int4multirange(int4range(1, 2), int4range(5, 7)), nummultirange(numrange(1.0, 2.0), numrange(3, 4)) FROM generate_series(1, 6) g;
CREATE TABLE places (id int PRIMARY KEY, at spot, stops spot[], trip trip);
INSERT INTO places SELECT g, ROW('a, "b"', 1.0, 'ok')::spot, ARRAY[ROW('x', 2.50, NULL)::spot, NULL],
  ROW('t', ARRAY[ROW('(', 1.0, 'sad')::spot], '[1,5)')::trip FROM generate_series(1, 6) g;
INSERT INTO places VALUES (7, NULL, '{}', NULL), (8, ROW(NULL, NULL, NULL)::spot, NULL, ROW(NULL, NULL, NULL)::trip);
CREATE TABLE moods (feeling mood, price amount NOT NULL, cost fee, moods mood[]);
INSERT INTO moods SELECT (ARRAY['sad', 'ok']::mood[])[g % 2 + 1], g, g, '{ok}' FROM generate_series(1, 6) g;
CREATE TABLE scalars (
  id uuid PRIMARY KEY, yes bool, padded char(5), short varchar(9), at timestamptz, here timestamp, day date, clock time, zoned timetz,
  span interval, bytes bytea, bits bit(3), many_bits varbit, cash money, real float4, ratio float8, host inet, net cidr, mac macaddr,
  spot point, area box, shape path, ring circle, words tsvector, query tsquery, lsn pg_lsn, path jsonpath, letter "char", label name,
  kin oid, rel regtype, small int2, large int8
);
INSERT INTO scalars SELECT ('00000000-0000-0000-0000-00000000000' || g)::uuid, g % 2 = 0, 'ab', 'cd', '2026-01-01 12:00+02', '2026-01-01', '2026-01-01',
  '10:00', '10:00+01', '1 day 2 h', '\xdead', '101', '1', 12.5, 0.1, 0.1, '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03', '(1,2)',
  '(1,1),(0,0)', '[(0,0),(1,1)]', '<(0,0),1>', 'a fat cat', 'fat & cat', '16/B374D848', '$.a', 'x', 'label', 1, 'integer', 1, 1 << 30
FROM generate_series(0, 5) g;
CREATE TABLE extremes (id int PRIMARY KEY, n numeric, f float8, r float4, t timestamptz, d date, s text);
INSERT INTO extremes VALUES (1, 'NaN', 'NaN', 'NaN', 'infinity', '-infinity', NULL), (2, 'Infinity', '-0', '-0', '0044-03-15 BC', '5874897-12-31', ''),
  (3, 1e-30, 1e-300, 1e-38, '2026-10-25 01:30+00', '0001-01-01 BC', 'NULL'), (4, 123456789012345678901234567890.10, 0.1, 0.1, NULL, NULL, '\N');

-- only where: virtual
CREATE TABLE virtual (id int PRIMARY KEY, a numeric, twice numeric GENERATED ALWAYS AS (a * 2) VIRTUAL);
INSERT INTO virtual SELECT g, g + 0.5 FROM generate_series(1, 9) g;

-- only where: xml
CREATE TABLE marked (id int PRIMARY KEY, x xml);
INSERT INTO marked SELECT g, '<a n="1">x</a>' FROM generate_series(1, 5) g;

-- only where: always
CREATE TABLE fk_parent (id int PRIMARY KEY, v text);
CREATE TABLE fk_child (id int PRIMARY KEY, up int REFERENCES fk_parent ON DELETE CASCADE ON UPDATE CASCADE, v text);
CREATE TABLE fk_weak (id int PRIMARY KEY, up int REFERENCES fk_parent ON DELETE SET NULL ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO fk_parent SELECT g, 'p' FROM generate_series(1, 8) g;
INSERT INTO fk_child SELECT g, g % 8 + 1, 'c' FROM generate_series(1, 16) g;
INSERT INTO fk_weak SELECT g, g % 8 + 1 FROM generate_series(1, 16) g;
CREATE TABLE audited (id int PRIMARY KEY, v text, touched int DEFAULT 0);
CREATE TABLE other.log (what text, row_id int, old_v text);
INSERT INTO audited SELECT g, 'a' FROM generate_series(1, 9) g;
CREATE FUNCTION other.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  INSERT INTO other.log VALUES (TG_OP, CASE WHEN TG_OP = 'DELETE' THEN OLD.id ELSE NEW.id END, CASE WHEN TG_OP <> 'INSERT' THEN OLD.v END);
  IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
  NEW.touched := NEW.touched + 1;
  RETURN NEW;
END $$;
CREATE TRIGGER noted BEFORE INSERT OR UPDATE OR DELETE ON audited FOR EACH ROW EXECUTE FUNCTION other.note();
CREATE TABLE other.vault (id int PRIMARY KEY, v text);
INSERT INTO other.vault SELECT g, 'gold' FROM generate_series(1, 5) g;
CREATE FUNCTION other.rob(n int) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'UPDATE other.vault SET v = v || n WHERE id = n % 6';
CREATE VIEW shown AS SELECT id, v || '!' AS v FROM single;
CREATE FUNCTION other.through() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE single SET v = NEW.v WHERE id = OLD.id;
  RETURN NEW;
END $$;
CREATE TRIGGER through INSTEAD OF UPDATE ON shown FOR EACH ROW EXECUTE FUNCTION other.through();
CREATE TABLE ruled (id int PRIMARY KEY, v text);
INSERT INTO ruled SELECT g, 'r' FROM generate_series(1, 5) g;
CREATE TABLE ruled_too (id int, v text);
CREATE RULE ruled_both AS ON UPDATE TO ruled DO ALSO INSERT INTO ruled_too VALUES (NEW.id, NEW.v);
CREATE TABLE secret (id int PRIMARY KEY, who text, v text);
INSERT INTO secret SELECT g, CASE WHEN g % 2 = 0 THEN 'zoo_app' ELSE 'somebody' END, 's' FROM generate_series(1, 8) g;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON secret USING (who = current_user);
CREATE MATERIALIZED VIEW totals AS SELECT v, count(*) AS n FROM single GROUP BY v;
CREATE UNIQUE INDEX totals_v ON totals (v);
CREATE MATERIALIZED VIEW unread AS SELECT 1 AS one WITH NO DATA;
SELECT lo_from_bytea(70001, '\x00ff'), lo_from_bytea(70002, ''), lo_from_bytea(70003, convert_to(repeat('page', 2000), 'UTF8'));
GRANT SELECT, UPDATE ON LARGE OBJECT 70001, 70003 TO zoo_app;
GRANT USAGE ON SCHEMA public, other, "Ev""il; --" TO zoo_app;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON ALL TABLES IN SCHEMA public, "Ev""il; --" TO zoo_app;
GRANT USAGE, UPDATE, SELECT ON ALL SEQUENCES IN SCHEMA public, other TO zoo_app;
GRANT SELECT ON other.log TO zoo_app;
GRANT SELECT (id) ON other.vault TO zoo_app;
GRANT CREATE ON SCHEMA public TO zoo_app;

-- only where: postgres_fdw
CREATE EXTENSION postgres_fdw;
CREATE SERVER nowhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '1');
CREATE USER MAPPING FOR PUBLIC SERVER nowhere OPTIONS (user 'nobody', password 'nothing');
CREATE FOREIGN TABLE far (id int, v text) SERVER nowhere;
CREATE TABLE mixed (id int, part int, v text) PARTITION BY LIST (part);
CREATE TABLE mixed_near PARTITION OF mixed FOR VALUES IN (0, 1);
CREATE FOREIGN TABLE mixed_far PARTITION OF mixed FOR VALUES IN (2) SERVER nowhere;
INSERT INTO mixed_near SELECT g, g % 2, 'near' FROM generate_series(1, 8) g;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON mixed, mixed_near TO zoo_app;

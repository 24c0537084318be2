"""A small schema with every shape of table that a change set has to tell right."""

from __future__ import annotations

__all__ = ["ZOO"]

ZOO = '''
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN money_amount AS numeric(12, 2);
CREATE TABLE plain (id int PRIMARY KEY, name text, price money_amount);
INSERT INTO plain VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3.5), (10, NULL, NULL);
CREATE VIEW plain_names AS SELECT name FROM plain;

CREATE TABLE keyless (a int, b text);
INSERT INTO keyless VALUES (1, 'x'), (1, 'x'), (2, 'y'), (NULL, NULL), (NULL, '');
CREATE TABLE single (v text);
INSERT INTO single VALUES (NULL), (''), ('x');

CREATE TABLE doc (id int PRIMARY KEY, j json, jb jsonb, x xml, p point);
INSERT INTO doc VALUES (1, '{"a": 1}', '{"a": 1.0}', NULL, '(1,2)');

CREATE TABLE "Mixed Case" ("Id" int PRIMARY KEY, "Say ""it""" text);
INSERT INTO "Mixed Case" VALUES (1, 'one'), (2, 'two');

CREATE TABLE made (
  id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED
);
INSERT INTO made (a) VALUES (1), (2);

CREATE TABLE measure (id int, at date, v int, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE measure_2025 PARTITION OF measure FOR VALUES FROM ('2025-01-01') TO ('2026-01-01');
CREATE TABLE measure_2026 PARTITION OF measure FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
INSERT INTO measure VALUES (1, '2025-05-05', 1), (2, '2026-06-06', 2);

CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE child (extra int, PRIMARY KEY (id)) INHERITS (parent);
INSERT INTO parent VALUES (1, 'p');
INSERT INTO child VALUES (2, 'c', 5);

CREATE TABLE coded (code text NOT NULL UNIQUE, v int);
INSERT INTO coded VALUES ('a', 1), ('b', 2);
CREATE TABLE paired (a int, b text, v int, PRIMARY KEY (b, a));
INSERT INTO paired VALUES (1, 'x', 1), (2, 'x', 2);
CREATE TABLE ranked (rank int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, name text);
INSERT INTO ranked VALUES (1, 'first'), (2, 'second');

CREATE TABLE secret (id int PRIMARY KEY, v text);
INSERT INTO secret VALUES (1, 's');
ALTER TABLE secret ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE UNLOGGED TABLE loose (id int PRIMARY KEY, v text);
INSERT INTO loose VALUES (1, 'l');

CREATE TABLE big (id int PRIMARY KEY, body text);
INSERT INTO big SELECT g, (SELECT string_agg(md5(g || '.' || i), '') FROM generate_series(1, 400) i)
FROM generate_series(1, 3) g;

CREATE TABLE many (id int PRIMARY KEY, v text);
INSERT INTO many SELECT g, 'v' || g FROM generate_series(1, 2000) g;

CREATE TABLE typed (
  id uuid PRIMARY KEY, yes bool, padded char(5), at timestamptz, bytes bytea, list int[], span interval,
  feeling mood, range tstzrange, cash money, ratio float8, net inet
);
INSERT INTO typed VALUES (
  '00000000-0000-0000-0000-000000000001', true, 'ab', '2026-01-01 12:00+02', '\\xdead', '{1,NULL}',
  '1 day 2 h', 'sad', '[2026-01-01 00:00Z,2026-01-02 00:00Z)', 12.5, 0.1, '10.0.0.1'
);

CREATE SCHEMA billing;
CREATE TABLE billing.claims (id int PRIMARY KEY, v text);
INSERT INTO billing.claims VALUES (1, 'claim');
CREATE SEQUENCE billing.numbers;
CREATE FUNCTION billing.answer() RETURNS int LANGUAGE sql AS 'SELECT 42';
CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n FROM plain;
'''

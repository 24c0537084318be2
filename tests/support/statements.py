"""Statements that random histories are made of: forms for any table of the wide zoo, and a few whole texts.

`{t}`, `{b}`, `{c}` stand for a table, its bare name and one of its columns, `{n}` for a number, `{m}` for a
small one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from support.zoo_wide import APP

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.zoo_wide import Shape

__all__ = [
    "ANYWHERE",
    "BY_ADMIN",
    "COPY_FREEZE",
    "DDL",
    "FORMS",
    "FROZEN_COPIES",
    "TENDING",
    "TRANSACTIONS",
    "Drawn",
]

# Not SQL: the player does it.
COPY_FREEZE = "\\copy freeze "


class Drawn(NamedTuple):
    """What the text of a statement is made of."""

    n: int
    modulus: int
    rest: int
    set_: str

    @property
    def where(self) -> str:
        """Some of the rows, whatever the table is like."""
        return f"abs(hashtext(zz::text)) % {self.modulus} = {self.rest % self.modulus}"


def _insert(shape: Shape, drawn: Drawn) -> str:
    if not shape.columns:
        return f"INSERT INTO {shape.bare} DEFAULT VALUES"
    values = ", ".join(shape.values).format(n=drawn.n)
    return f"INSERT INTO {shape.bare} ({', '.join(shape.columns)}) SELECT {values}"


def _insert_many(shape: Shape, drawn: Drawn) -> str:
    if not shape.columns:
        return f"INSERT INTO {shape.bare} DEFAULT VALUES"
    values = re.sub(r"'([^'{]*)\{n\}([^']*)'", r"('\1' || {n} || '\2')", ", ".join(shape.values))
    values = re.sub(r"\{n\}\.(\d+)", r"({n} + 0.\1)", values).format(n="g")
    return (
        f"INSERT INTO {shape.bare} ({', '.join(shape.columns)}) SELECT {values} "
        f"FROM generate_series({drawn.n + 100}, {drawn.n + 130}) g"
    )


def _skip_clash(shape: Shape, drawn: Drawn) -> str:
    return f"{_insert(shape, drawn)} ON CONFLICT DO NOTHING"


def _upsert(shape: Shape, drawn: Drawn) -> str:
    if not shape.key:
        return _skip_clash(shape, drawn)
    last = shape.columns[-1]
    return f"{_insert(shape, drawn)} ON CONFLICT ({shape.key}) DO UPDATE SET {last} = EXCLUDED.{last}"


def _merge(shape: Shape, drawn: Drawn) -> str:
    if not shape.key or len(shape.columns) < 2:
        return _insert(shape, drawn)
    key, names, last = shape.key.split(", ")[0], ", ".join(shape.columns), shape.columns[-1]
    values = ", ".join(shape.values).format(n=drawn.n)
    return (
        f"MERGE INTO {shape.bare} AS zz USING (SELECT {values}) AS s({names}) ON zz.{key} = s.{key} "
        f"WHEN MATCHED AND zz.{key} IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET {last} = s.{last} "
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({', '.join(f's.{name}' for name in shape.columns)})"
    )


def _update(shape: Shape, drawn: Drawn) -> str:
    if not shape.sets:
        return _delete(shape, drawn)
    return f"UPDATE {shape} AS zz SET {drawn.set_} WHERE {drawn.where}"


def _update_all(shape: Shape, drawn: Drawn) -> str:
    return _update(shape, drawn).partition(" WHERE ")[0] if shape.sets else _insert(shape, drawn)


def _update_alike(shape: Shape, drawn: Drawn) -> str:
    """New row versions that hold what the old ones held."""
    if not shape.columns:
        return _read(shape, drawn)
    name = shape.columns[-1]
    return f"UPDATE {shape} AS zz SET {name} = {name} WHERE {drawn.where}"


def _delete(shape: Shape, drawn: Drawn) -> str:
    return f"DELETE FROM {shape} AS zz WHERE {drawn.where}"


def _delete_one(shape: Shape, drawn: Drawn) -> str:
    return (
        f"DELETE FROM {shape} WHERE (tableoid, ctid) = "
        f"(SELECT tableoid, ctid FROM {shape} ORDER BY 1, 2 OFFSET {drawn.n % 7} LIMIT 1)"
    )


def _empty(shape: Shape, drawn: Drawn) -> str:
    return f"DELETE FROM {shape}"


def _truncate(shape: Shape, drawn: Drawn) -> str:
    return f"TRUNCATE {shape} {('', 'CASCADE', 'RESTART IDENTITY CASCADE')[drawn.n % 3]}"


def _with_copy(shape: Shape, *between: str) -> str:
    names = ", ".join(shape.columns) or "1"
    back = f"INSERT INTO {shape.bare} ({names}) SELECT {names} FROM pg_temp.kept"
    if not shape.columns:
        back = f"INSERT INTO {shape.bare} DEFAULT VALUES"
    return "; ".join(
        [f"CREATE TEMP TABLE kept AS SELECT {names} FROM {shape}", *between, back, "DROP TABLE pg_temp.kept"]
    )


def _refill(shape: Shape, drawn: Drawn) -> str:
    return _with_copy(shape, f"TRUNCATE {shape}")


def _put_back(shape: Shape, drawn: Drawn) -> str:
    """Delete rows and insert them again."""
    return _with_copy(shape, f"DELETE FROM {shape}")


def _change_and_put_back(shape: Shape, drawn: Drawn) -> str:
    return _with_copy(shape, _update(shape, drawn), f"DELETE FROM {shape}")


_REVERSE = {
    "v = v || 'x'": "v = left(v, -1)",
    "v = v + 1": "v = v - 1",
    "n = n + 1": "n = n - 1",
    "a = a + 1": "a = a - 1",
    "extra = extra + 1": "extra = extra - 1",
    "place = 9 - place": "place = 9 - place",
    "hits = hits + 1": "hits = hits - 1",
    "n = n * 1.0": "n = n + 0",
    "part = 3 - part": "part = 3 - part",
    "at = at + 365": "at = at - 365",
    "yes = NOT yes": "yes = NOT yes",
    "f = f * -1": "f = -f",
    "bits = ~bits": "bits = ~bits",
}


def _there_and_back(shape: Shape, drawn: Drawn) -> str:
    back = _REVERSE.get(drawn.set_)
    if back is None:
        return _update_alike(shape, drawn)
    return f"UPDATE {shape} SET {drawn.set_}; UPDATE {shape} SET {back}"


def _swap_keys(shape: Shape, drawn: Drawn) -> str:
    if shape.key != "id" or shape.values[0] != "{n}":
        return _update(shape, drawn)
    one, other = drawn.n % 8 + 1, drawn.rest % 5 + 2
    return (
        f"UPDATE {shape} SET id = -id WHERE id IN ({one}, {other}); "
        f"UPDATE {shape} SET id = {one + other} + id WHERE id < 0"
    )


def _lock(shape: Shape, drawn: Drawn) -> str:
    strength = ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE")[drawn.n % 4]
    return f"SELECT FROM {shape} AS zz WHERE {drawn.where} FOR {strength}"


def _lock_and_update(shape: Shape, drawn: Drawn) -> str:
    return f"BEGIN; {_lock(shape, drawn)}; {_update(shape, drawn)}; COMMIT"


def _read(shape: Shape, drawn: Drawn) -> str:
    """Reading prunes dead rows, and sets what is known of transactions on the pages."""
    return f"SELECT count(*), max(hashtext(zz::text)) FROM {shape} AS zz"


def _caught(shape: Shape, drawn: Drawn) -> str:
    """A subtransaction that is undone, in one that is not."""
    return (
        f"DO $do$ BEGIN {_insert(shape, drawn)}; BEGIN {_update(shape, drawn)}; PERFORM 1 / 0; "
        "EXCEPTION WHEN division_by_zero THEN NULL; END; END $do$"
    )


_WEIGHTS: tuple[tuple[int, Callable[[Shape, Drawn], str]], ...] = (
    (4, _insert),
    (2, _insert_many),
    (1, _skip_clash),
    (3, _upsert),
    (2, _merge),
    (8, _update),
    (2, _update_all),
    (3, _update_alike),
    (4, _delete),
    (3, _delete_one),
    (1, _empty),
    (1, _truncate),
    (1, _refill),
    (2, _put_back),
    (1, _change_and_put_back),
    (3, _there_and_back),
    (2, _swap_keys),
    (3, _lock),
    (2, _lock_and_update),
    (2, _read),
    (2, _caught),
)
FORMS = [form for weight, form in _WEIGHTS for _ in range(weight)]

ANYWHERE = (
    "SELECT other.rob({n})",
    "UPDATE shown SET v = 'shown{n}' WHERE id % 9 = {n} % 9",
    "INSERT INTO audited SELECT {n}, 'again' ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v",
    "SELECT nextval('other.numbers')",
    "SELECT setval('served_id_seq', {n} + 10, false)",
    "SELECT lo_put(70001, {n}, '\\xbeef')",
    "SELECT lo_put(70003, 2047, '\\x00')",
    "SELECT lo_from_bytea(80000 + {n} % 3, '\\x0102')",
    "SELECT lo_unlink(80000 + {n} % 3)",
    "SELECT lo_truncate(lo_open(70003, 131072), {n})",
    "SET enable_seqscan = off",
    "SET vacuum_truncate = off",
)
BY_ADMIN = (
    "SELECT lo_unlink(70002)",
    "DELETE FROM other.log WHERE row_id % 2 = {n} % 2",
    "UPDATE other.vault SET v = v WHERE id = {n} % 6",
    "REFRESH MATERIALIZED VIEW totals",
    "SET session_replication_role = replica",
    "LOCK TABLE single IN SHARE MODE",
)
TENDING = (
    "VACUUM",
    "VACUUM {t}",
    "VACUUM {t}",
    "VACUUM (FREEZE) {t}",
    "VACUUM (FREEZE) {t}",
    "VACUUM (FULL) {t}",
    "VACUUM (FULL, FREEZE) {t}",
    "VACUUM (INDEX_CLEANUP off, TRUNCATE off) {t}",
    "VACUUM (DISABLE_PAGE_SKIPPING) {t}",
    "ANALYZE {t}",
    "ANALYZE",
    "REINDEX TABLE {t}",
    "REFRESH MATERIALIZED VIEW CONCURRENTLY totals",
    "CHECKPOINT",
    "CLUSTER {t}",
    "VACUUM (FREEZE)",
)
FROZEN_COPIES = tuple(
    COPY_FREEZE + name for name in ("single", "many", "hot", "keyless", "toasted", "docs", "only_text")
)

DDL = (
    "ALTER TABLE {t} ADD COLUMN added_{m} int",
    "ALTER TABLE {t} ADD COLUMN added_{m} numeric DEFAULT {n}",
    "ALTER TABLE {t} ADD COLUMN added_{m} text NOT NULL DEFAULT 'd'",
    "ALTER TABLE {t} ADD COLUMN added_{m} float8 DEFAULT random()",
    "ALTER TABLE {t} ADD COLUMN added_{m} int GENERATED ALWAYS AS ({n}) STORED",
    "ALTER TABLE {t} DROP COLUMN {c} CASCADE",
    "ALTER TABLE {t} RENAME COLUMN {c} TO renamed_{m}",
    "ALTER TABLE {t} RENAME TO renamed_{m}",
    "ALTER TABLE {t} SET SCHEMA other",
    "ALTER TABLE {t} ALTER COLUMN {c} TYPE text USING {c}::text",
    "ALTER TABLE {t} ALTER COLUMN {c} TYPE varchar(4000)",
    "ALTER TABLE {t} ALTER COLUMN {c} TYPE numeric USING NULL",
    "ALTER TABLE {t} ALTER COLUMN {c} SET NOT NULL",
    "ALTER TABLE {t} ALTER COLUMN {c} DROP NOT NULL",
    "ALTER TABLE {t} ALTER COLUMN {c} SET DEFAULT NULL",
    "ALTER TABLE {t} ALTER COLUMN {c} SET STORAGE EXTERNAL",
    "ALTER TABLE {t} ALTER COLUMN {c} DROP EXPRESSION",
    "ALTER TABLE {t} DROP CONSTRAINT {b}_pkey CASCADE",
    "ALTER TABLE {t} ADD CONSTRAINT whole CHECK ({c} IS NOT NULL) NOT VALID",
    "ALTER TABLE {t} ADD UNIQUE ({c})",
    "ALTER TABLE {t} SET UNLOGGED",
    "ALTER TABLE {t} SET LOGGED",
    "ALTER TABLE {t} SET (fillfactor = 30)",
    "ALTER TABLE {t} DISABLE TRIGGER ALL",
    "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE {t} FORCE ROW LEVEL SECURITY",
    "ALTER TABLE {t} OWNER TO " + APP,
    "DROP TABLE {t} CASCADE",
    "CREATE TABLE copied_{m} AS TABLE {t}",
    "CREATE TABLE made_again AS TABLE {t}; DROP TABLE {t} CASCADE; ALTER TABLE made_again RENAME TO {b}",
    "CREATE TABLE like_{m} (LIKE {t} INCLUDING ALL)",
    "CREATE INDEX ON {t} ({c})",
    "GRANT SELECT ON {t} TO PUBLIC",
    "REVOKE ALL ON {t} FROM " + APP,
    "CREATE POLICY policy_{m} ON {t} USING (true)",
    "CLUSTER {t} USING {b}_pkey",
    "ALTER TABLE ranged DETACH PARTITION ranged_2025",
    "ALTER TABLE ranged DETACH PARTITION ranged_2026; DROP TABLE ranged_2026",
    "ALTER TABLE ranged ATTACH PARTITION ranged_2025 FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
    "ALTER TABLE listed DETACH PARTITION listed_1",
    "ALTER TABLE listed ATTACH PARTITION listed_spare FOR VALUES IN (9)",
    "ALTER TABLE hashed DETACH PARTITION hashed_0",
    "CREATE TABLE ranged_2030 PARTITION OF ranged FOR VALUES FROM ('2030-01-01') TO ('2031-01-01')",
    "TRUNCATE ranged_2025",
    "DROP TABLE hashed_1",
    "ALTER TABLE child NO INHERIT parent",
    "ALTER TABLE orphan INHERIT parent",
    "ALTER TYPE mood ADD VALUE 'new_{m}'",
    "ALTER DOMAIN amount DROP CONSTRAINT amount_check",
    "CREATE TYPE other.kind_{m} AS ENUM ('a')",
    "CREATE FUNCTION other.new_{m}() RETURNS int LANGUAGE sql AS 'SELECT {n}'",
    "CREATE OR REPLACE FUNCTION other.rob(n int) RETURNS void LANGUAGE sql AS 'SELECT NULL'",
    "DROP FUNCTION other.rob",
    "CREATE OR REPLACE VIEW shown AS SELECT id, v || '?' AS v FROM single",
    "DROP TRIGGER noted ON audited",
    "CREATE SEQUENCE other.new_{m} START {n}",
    "ALTER SEQUENCE other.numbers RESTART WITH {n}",
    "ALTER SEQUENCE other.numbers RENAME TO digits",
    "DROP SEQUENCE other.numbers",
    "ALTER SCHEMA other RENAME TO another",
    "CREATE SCHEMA made_{m}",
    "DROP MATERIALIZED VIEW totals",
    "REFRESH MATERIALIZED VIEW unread",
    "COMMENT ON TABLE {t} IS 'note {n}'",
)
TRANSACTIONS = (
    "BEGIN",
    "BEGIN",
    "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "RELEASE s",
)

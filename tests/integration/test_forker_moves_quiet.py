"""While dates move, nothing fires, cascades or stays behind, for a superuser and for a mere owner alike."""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.databases import connected, scratch_database

from redteam_forker.errors import SeedError
from redteam_forker.seeds import MoveFacts, Seed, SeedFile, move_dates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server

_ANCHOR = date(2026, 11, 30)
_WORLD = """
    CREATE TABLE days (day date PRIMARY KEY, serial int UNIQUE DEFERRABLE INITIALLY DEFERRED);
    CREATE TABLE visits (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, day date NOT NULL, moved date,
      next int REFERENCES visits,
      CONSTRAINT visits_day FOREIGN KEY (day) REFERENCES days ON UPDATE CASCADE ON DELETE CASCADE
        DEFERRABLE INITIALLY DEFERRED);
    COMMENT ON CONSTRAINT visits_day ON visits IS 'it''s a day';
    CREATE TABLE notes (visit int REFERENCES visits ON DELETE CASCADE, text text);
    CREATE TABLE log (what text);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql
      AS 'BEGIN INSERT INTO log VALUES (TG_NAME); RETURN NEW; END';
    CREATE TRIGGER plain BEFORE INSERT OR DELETE ON visits FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER always BEFORE INSERT OR DELETE ON visits FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER replica BEFORE INSERT OR DELETE ON visits FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER never BEFORE INSERT OR DELETE ON visits FOR EACH ROW EXECUTE FUNCTION note();
    CREATE RULE also AS ON INSERT TO days DO ALSO INSERT INTO log VALUES ('rule');
    INSERT INTO days (day) SELECT date '2026-11-30' + 7 * g FROM generate_series(0, 3) g;
    INSERT INTO visits (day, moved, next) VALUES ('2026-11-30', '2026-12-01', NULL), ('2026-12-21', NULL, 1);
    INSERT INTO notes VALUES (1, 'a'), (2, 'b');
    SET CONSTRAINTS ALL IMMEDIATE;
    ALTER TABLE visits ENABLE ALWAYS TRIGGER always, ENABLE REPLICA TRIGGER replica, DISABLE TRIGGER never;
    ALTER TABLE days ENABLE ALWAYS RULE also;
    ALTER TABLE visits ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    CREATE POLICY none ON visits USING (false);
    TRUNCATE log;
"""
_SHAPE = """
    SELECT format('%s %s', tgname, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT format('%s %s', rulename, ev_enabled) FROM pg_rewrite WHERE rulename = 'also'
    UNION ALL SELECT format('%s %s %s %s', conname, pg_get_constraintdef(oid), convalidated,
                            obj_description(oid, 'pg_constraint')) FROM pg_constraint WHERE contype = 'f'
    UNION ALL SELECT format('%s %s %s', relname, relrowsecurity, relforcerowsecurity) FROM pg_class
              WHERE relname IN ('visits', 'days')
    ORDER BY 1
"""


def moving(*moves: str) -> Seed:
    return Seed(files=(SeedFile(name="a.sql", data=b""),), anchor=_ANCHOR, moves=moves)


@contextlib.asynccontextmanager
async def owning(server: Server) -> AsyncIterator[asyncpg.Connection]:
    """A session of a role that may nothing but own its database."""
    name, password = f"owner_{secrets.token_hex(6)}", secrets.token_hex(8)
    async with connected(server) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        await admin.execute(f"CREATE DATABASE {name} OWNER {name} STRATEGY FILE_COPY")
        try:
            session = await asyncpg.connect(
                host=server.facts.host, port=server.facts.port, user=name, password=password, database=name
            )
            try:
                yield session
            finally:
                await session.close()
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            await admin.execute(f"DROP ROLE {name}")


@contextlib.asynccontextmanager
async def superuser(server: Server) -> AsyncIterator[asyncpg.Connection]:
    async with scratch_database(server) as database, connected(server, database) as session:
        yield session


@pytest.mark.parametrize("as_whom", [superuser, owning], ids=["superuser", "owner"])
async def test_nothing_fires_and_all_that_was_off_is_on_again_as_it_was(
    server: Server, as_whom: type[contextlib.AbstractAsyncContextManager[asyncpg.Connection]]
) -> None:
    async with as_whom(server) as session:  # type: ignore[call-arg]
        await session.execute(_WORLD)
        shape = await session.fetch(_SHAPE)
        facts = await move_dates(
            session, moving("days.day", "visits.day", "visits.moved"), today=_ANCHOR + timedelta(weeks=2)
        )
        assert facts.weeks == 2
        assert await session.fetch(_SHAPE) == shape
        assert await session.fetchval("SELECT count(*) FROM log") == 0
        assert await session.fetchval("SELECT count(*) FROM notes") == 2
        assert await session.fetchval("SELECT min(day) FROM days") == date(2026, 12, 14)
        await session.execute("ALTER TABLE visits DISABLE ROW LEVEL SECURITY")
        rows = await session.fetch("SELECT id, day, moved, next FROM visits ORDER BY id")
        assert [tuple(row) for row in rows] == [
            (1, date(2026, 12, 14), date(2026, 12, 15), None),
            (2, date(2027, 1, 4), None, 1),
        ]


async def test_an_owners_foreign_keys_are_checked_again(server: Server) -> None:
    schema = """
        CREATE TABLE a (id int PRIMARY KEY, d date);
        CREATE TABLE b (a int);
        INSERT INTO a VALUES (1, '2026-11-30');
        INSERT INTO b VALUES (5);
        ALTER TABLE b ADD CONSTRAINT dangling FOREIGN KEY (a) REFERENCES a NOT VALID;
    """
    async with owning(server) as session:
        await session.execute(schema)
        await move_dates(session, moving("a.d"), today=_ANCHOR + timedelta(weeks=1))
        kept = "SELECT convalidated FROM pg_constraint WHERE conname = 'dangling'"
        assert await session.fetchval(kept) is False
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await session.execute("INSERT INTO b VALUES (7)")


async def test_somebody_elses_table_is_refused_with_the_way_out(server: Server) -> None:
    async with owning(server) as session:
        database = await session.fetchval("SELECT current_database()")
        async with connected(server, database) as admin:
            await admin.execute("CREATE TABLE t (d date); INSERT INTO t VALUES ('2026-11-30')")
            await admin.execute("CREATE RULE r AS ON DELETE TO t DO ALSO NOTHING")
            await admin.execute(f"GRANT ALL ON t TO {database}")
        with pytest.raises(
            SeedError, match=r"needs a superuser or the owner of what moves .*owner of table t"
        ):
            await move_dates(session, moving("t.d"), today=_ANCHOR + timedelta(weeks=1))


async def test_ranges_move_with_their_bounds_and_exclusions_hold(server: Server) -> None:
    schema = """
        CREATE EXTENSION btree_gist;
        CREATE DOMAIN stay AS daterange;
        CREATE TABLE t (id int PRIMARY KEY, d stay, ts tsrange, tz tstzrange, m tsmultirange, room int,
          EXCLUDE USING gist (room WITH =, tz WITH &&));
        INSERT INTO t VALUES
          (1, '[2026-11-30,2026-12-05)', '(2026-11-30 09:00,2026-11-30 10:00]',
           '[2026-11-30 09:00Z,2026-11-30 10:00Z)',
           '{[2026-11-30 09:00,2026-11-30 10:00),[2026-12-07 09:00,)}',
           1),
          (2, 'empty', '(,2026-11-30 10:00)', '[2026-12-07 09:00Z,infinity]', '{}', 1),
          (3, NULL, NULL, '[2026-12-14 09:00Z,2026-12-14 10:00Z)', NULL, 2);
    """
    async with superuser(server) as session:
        await session.execute(schema)
        facts = await move_dates(session, moving("t.d", "t.ts", "t.tz", "t.m"), today=date(2026, 12, 7))
        assert facts == MoveFacts(weeks=1, columns=("public.t.d", "public.t.ts", "public.t.tz", "public.t.m"))
        rows = await session.fetch("SELECT id, d::text, ts::text, tz::text, m::text FROM t ORDER BY id")
        assert [tuple(row) for row in rows] == [
            (
                1,
                "[2026-12-07,2026-12-12)",
                '("2026-12-07 09:00:00","2026-12-07 10:00:00"]',
                '["2026-12-07 09:00:00+00","2026-12-07 10:00:00+00")',
                '{["2026-12-07 09:00:00","2026-12-07 10:00:00"),["2026-12-14 09:00:00",)}',
            ),
            (2, "empty", '(,"2026-12-07 10:00:00")', '["2026-12-14 09:00:00+00",infinity]', "{}"),
            (3, None, None, '["2026-12-21 09:00:00+00","2026-12-21 10:00:00+00")', None),
        ]
        low = await session.fetchval("SELECT lower(tz) FROM t WHERE id = 1")
        assert low == datetime(2026, 12, 7, 9, tzinfo=UTC)

"""Moving a seeded world's dates by whole weeks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from support.databases import connected, scratch_database

from redteam_forker.errors import SeedError
from redteam_forker.seeds import MoveFacts, Seed, SeedFile, move_dates

if TYPE_CHECKING:
    import asyncpg

    from redteam_forker.servers import Server

_ANCHOR = date(2026, 11, 30)


def moving(*moves: str) -> Seed:
    return Seed(files=(SeedFile(name="a.sql", data=b""),), anchor=_ANCHOR, moves=moves)


async def moved(session: asyncpg.Connection, *moves: str, weeks: int = 3) -> MoveFacts:
    return await move_dates(session, moving(*moves), today=_ANCHOR + timedelta(weeks=weeks, days=2))


async def test_dates_and_times_move_and_all_else_stays(server: Server) -> None:
    schema = """
        CREATE DOMAIN birthday AS date;
        CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, d birthday, ts timestamp,
            tz timestamptz, stays date, note text, day date GENERATED ALWAYS AS (ts::date) STORED);
        INSERT INTO t (d, ts, tz, stays, note) VALUES
            ('2026-12-03', '2026-12-03 09:30', '2026-12-03 09:30Z', '2026-12-03', 'a'),
            (NULL, 'infinity', '-infinity', NULL, NULL);
    """
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        facts = await moved(session, "t.d", "public.t.ts", "t.tz")
        anchored, christmas = date(2026, 12, 3), date(2026, 12, 24)
        assert facts == MoveFacts(weeks=3, columns=("public.t.d", "public.t.ts", "public.t.tz"))
        rows = await session.fetch(
            "SELECT id, d, ts::text, tz::text, stays, note, day::text FROM t ORDER BY id"
        )
        assert [tuple(row) for row in rows] == [
            (
                1,
                christmas,
                f"{christmas} 09:30:00",
                f"{christmas} 09:30:00+00",
                anchored,
                "a",
                f"{christmas}",
            ),
            (2, None, "infinity", "-infinity", None, None, "infinity"),
        ]
        assert await session.fetchval("INSERT INTO t DEFAULT VALUES RETURNING id") == 3


@pytest.mark.parametrize("weeks", [1, -1, 2, 60])
async def test_weekly_slots_move_onto_each_other_without_a_clash(server: Server, weeks: int) -> None:
    schema = """
        CREATE EXTENSION btree_gist;
        CREATE FUNCTION span(timestamptz, int) RETURNS tstzrange IMMUTABLE LANGUAGE sql
        AS 'SELECT tstzrange($1, $1 + make_interval(mins => $2))';
        CREATE TABLE slots (
          id int PRIMARY KEY, provider_id int, starts_at timestamptz, minutes int,
          during tstzrange GENERATED ALWAYS AS (span(starts_at, minutes)) STORED,
          UNIQUE (provider_id, starts_at),
          EXCLUDE USING gist (provider_id WITH =, during WITH &&)
        );
        INSERT INTO slots SELECT g, g % 2, timestamptz '2026-11-30 09:00Z' + (g / 2) * interval '1 week', 60
        FROM generate_series(0, 199) g ORDER BY g % 7, g;
    """
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        before = await session.fetch("SELECT id, starts_at FROM slots ORDER BY id")
        await moved(session, "slots.starts_at", weeks=weeks)
        after = await session.fetch("SELECT id, starts_at, lower(during) AS low FROM slots ORDER BY id")
        shift = timedelta(weeks=weeks)
        assert [(row["id"], row["starts_at"] + shift) for row in before] == [
            (r["id"], r["starts_at"]) for r in after
        ]
        assert all(row["low"] == row["starts_at"] for row in after)


async def test_no_trigger_fires_and_no_key_cascades(server: Server) -> None:
    schema = """
        CREATE TABLE days (day date PRIMARY KEY);
        CREATE TABLE visits (id int PRIMARY KEY, day date REFERENCES days ON DELETE CASCADE);
        CREATE TABLE log (what text);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql
        AS 'BEGIN INSERT INTO log VALUES (TG_OP); RETURN NULL; END';
        CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON days FOR EACH ROW EXECUTE FUNCTION note();
        INSERT INTO days VALUES ('2026-11-30'), ('2026-12-07');
        INSERT INTO visits VALUES (1, '2026-12-07');
        TRUNCATE log;
    """
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        await moved(session, "days.day", "visits.day", weeks=1)
        assert [row[0] for row in await session.fetch("SELECT day FROM days ORDER BY day")] == [
            date(2026, 12, 7),
            date(2026, 12, 14),
        ]
        assert await session.fetchval("SELECT day FROM visits") == date(2026, 12, 14)
        assert await session.fetchval("SELECT count(*) FROM log") == 0
        with pytest.raises(
            SeedError, match=r"public\.days\.day is bound to public\.visits\.day .* move both"
        ):
            await moved(session, "days.day")


async def test_partitions_children_and_materialized_views_follow(server: Server) -> None:
    schema = """
        CREATE TABLE p (id int, d date) PARTITION BY RANGE (d);
        CREATE TABLE p_old PARTITION OF p FOR VALUES FROM ('2026-11-01') TO ('2026-12-01');
        CREATE TABLE p_new PARTITION OF p FOR VALUES FROM ('2026-12-01') TO ('2027-01-01');
        INSERT INTO p VALUES (1, '2026-11-30'), (2, '2026-12-01');
        CREATE TABLE base (id int, d date);
        CREATE TABLE derived (x int) INHERITS (base);
        INSERT INTO base VALUES (1, '2026-11-30');
        INSERT INTO derived VALUES (2, '2026-11-30', 7);
        CREATE MATERIALIZED VIEW latest AS SELECT max(d) AS d FROM base;
    """
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        await moved(session, "p.d", "base.d", weeks=1)
        rows = await session.fetch("SELECT id, d, tableoid::regclass::text FROM p ORDER BY id")
        assert [tuple(row) for row in rows] == [
            (1, date(2026, 12, 7), "p_new"),
            (2, date(2026, 12, 8), "p_new"),
        ]
        rows = await session.fetch("SELECT id, d, tableoid::regclass::text FROM base ORDER BY id")
        assert [tuple(row) for row in rows] == [
            (1, date(2026, 12, 7), "base"),
            (2, date(2026, 12, 7), "derived"),
        ]
        assert await session.fetchval("SELECT x FROM derived") == 7
        assert await session.fetchval("SELECT d FROM latest") == date(2026, 12, 7)
        with pytest.raises(SeedError, match=r'by 52 weeks, break the schema: no partition of relation "p"'):
            await moved(session, "p.d", weeks=52)
        assert await session.fetchval("SELECT count(*) FROM p") == 2


async def test_an_instant_keeps_its_clock_time_in_utc_whatever_the_zone_of_the_session(
    server: Server,
) -> None:
    schema = "CREATE TABLE t (at timestamptz); INSERT INTO t VALUES ('2026-10-30 12:00Z')"
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        await session.execute("SET TimeZone = 'America/New_York'")
        await moved(session, "t.at", weeks=1)  # over the end of daylight saving time in New York
        assert await session.fetchval("SELECT at FROM t") == datetime(2026, 11, 6, 12, tzinfo=UTC)
        assert await session.fetchval("SHOW TimeZone") == "America/New_York"


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (
            "nowhere.d",
            "there is no table for 'nowhere.d'; there are public.t, public.u.v",
        ),
        ("t.nope", "table public.t has no column 'nope'; it has id, d, note, made"),
        ("t.note", "public.t.note is of type text; only date, timestamp and timestamptz move, and ranges"),
        ("t.made", "public.t.made is generated from other columns; move those instead"),
        ("d", "'d' is not table.column"),
        ("a.b.c.d", "'a.b.c.d' is not table.column"),
    ],
)
async def test_what_cannot_move_is_refused_with_what_could(server: Server, move: str, words: str) -> None:
    schema = """
        CREATE TABLE t (id int, d date, note text, made date GENERATED ALWAYS AS (d + 1) STORED);
        CREATE TABLE "u.v" (d date);
    """
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        with pytest.raises(SeedError) as refusal:
            await moved(session, move, weeks=0)
        assert words in str(refusal.value)


async def test_a_quoted_name_may_hold_a_dot(server: Server) -> None:
    schema = 'CREATE TABLE "u.v" ("D" date); INSERT INTO "u.v" VALUES (\'2026-11-30\')'
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        assert (await moved(session, '"u.v"."D"', weeks=1)).columns == ("public.u.v.D",)
        assert await session.fetchval('SELECT "D" FROM "u.v"') == date(2026, 12, 7)


async def test_a_broken_constraint_moves_nothing(server: Server) -> None:
    schema = """
        CREATE TABLE t (d date CONSTRAINT this_year CHECK (d < '2027-01-01'));
        INSERT INTO t VALUES ('2026-11-30');
    """
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        with pytest.raises(SeedError, match="this_year"):
            await moved(session, "t.d", weeks=10)
        assert await session.fetchval("SELECT d FROM t") == date(2026, 11, 30)


async def test_nothing_moves_without_moves_or_within_the_anchor_week(server: Server) -> None:
    schema = "CREATE TABLE t (d date); INSERT INTO t VALUES ('2026-11-30')"
    async with scratch_database(server, schema) as database, connected(server, database) as session:
        place = "SELECT ctid::text || xmin FROM t"
        before = await session.fetchval(place)
        assert await moved(session, "t.d", weeks=0) == MoveFacts(weeks=0, columns=("public.t.d",))
        assert await moved(session, weeks=9) == MoveFacts(weeks=0, columns=())
        assert await session.fetchval(place) == before

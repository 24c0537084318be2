"""Change sets where settings, derived columns and sheer size could make them wrong."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from support.clones import baseline_of, cloned
from support.databases import connected

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_PRINTED = """
CREATE TABLE printed (
  id int PRIMARY KEY, d date, t timestamptz, i interval, f float8, b bytea, m money, n numeric
);
INSERT INTO printed VALUES (1, '2026-02-03', '2026-02-03 04:05Z', '1 day 2 h', 0.1, '\\x00ff', 5, 1.50);
"""
_SETTINGS = {
    "DateStyle": "SQL, DMY",
    "TimeZone": "Asia/Kathmandu",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "-3",
    "bytea_output": "escape",
    "search_path": "nowhere",
    "default_transaction_isolation": "serializable",
    "statement_timeout": "1ms",
}


@pytest.mark.parametrize("name", _SETTINGS)
async def test_settings_of_a_fork_change_nothing_of_what_is_told(server: Server, name: str) -> None:
    # P62
    async with baseline_of(server, _PRINTED) as baseline, cloned(server, baseline) as fork:
        async with connected(server) as admin:
            await admin.execute(f"ALTER DATABASE {fork.name} SET {name} = '{_SETTINGS[name]}'")
        await fork.run("SET search_path = public; UPDATE printed SET id = 1")
        assert (await fork.changes()).tables == ()
        await fork.run("SET search_path = public; UPDATE printed SET n = 2")
        (table,) = (await fork.changes()).tables
    (row,) = table.rows
    assert row.changed == ("n",)
    assert row.new == {
        "id": "1",
        "d": "2026-02-03",
        "t": "2026-02-03 04:05:00+00",
        "i": "1 day 02:00:00",
        "f": "0.1",
        "b": "\\x00ff",
        "m": "$5.00",
        "n": "2",
    }


async def test_a_column_that_follows_another_is_told_with_it(server: Server) -> None:
    # P68: stored and virtual ones alike; a rule that allows columns names them too.
    sql = """
        CREATE TABLE made (id int PRIMARY KEY, a int, twice int GENERATED ALWAYS AS (a * 2) STORED,
                           thrice int GENERATED ALWAYS AS (a * 3));
        INSERT INTO made VALUES (1, 1), (2, 2);
    """
    async with baseline_of(server, sql) as baseline, cloned(server, baseline) as fork:
        await fork.run("UPDATE made SET a = 5 WHERE id = 1")
        (table,) = (await fork.changes()).tables
    (row,) = table.rows
    assert row.changed == ("a", "twice", "thrice")


async def test_a_table_that_was_rewritten_whole_is_compared_in_little_memory(server: Server) -> None:
    # P76: both sides are streamed in one order, and only what differs is kept.
    rows, width = 30_000, 1000
    sql = f"""
        CREATE TABLE wide (id int PRIMARY KEY, v text);
        INSERT INTO wide SELECT g, repeat(md5(g::text), {width // 32}) FROM generate_series(1, {rows}) g;
    """
    async with baseline_of(server, sql) as baseline, cloned(server, baseline) as fork:
        await fork.run("UPDATE wide SET v = 'x' WHERE id = 7", "VACUUM FULL wide")
        tracemalloc.start()
        try:
            (table,) = (await fork.changes()).tables
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (table.method, len(table.rows)) == ("keys", 1)
    assert peak < rows * width / 5

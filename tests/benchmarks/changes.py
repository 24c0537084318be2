"""What a change set costs, beside hashing every row of both sides: `python tests/benchmarks/changes.py`.

Two parts, each a Markdown table with machine and date:

cost      `collect_changes` beside full hashing, by size of the database and number of changed rows
memory    how much this process grows while it collects a million changed rows

Hashing is as good as SQL makes it: both sides at once, each row hashed by the server with the parallel
workers that it gives by default, hashes summed by bucket of some sixteen keys, and only the rows of buckets
that differ are read. It is told the table and its key, and says nothing of schema, sequences, types or
writers. The changed rows lie anywhere: eight of ten are updates, one is an insert, one a delete. The two take
turns, and each answer is checked.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio

# A script finds its neighbours only if it says where they are.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.places import machine, places, quiet
from support.databases import connected

from redteam_forker.changes import collect_changes
from redteam_forker.fork import create_fork, drop_fork
from redteam_forker.probe import probe_seed
from redteam_forker.seeds import Seed, SeedFile
from redteam_forker.servers import open_server
from redteam_forker.template import build_template, drop_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

MIB = 1 << 20
TODAY = date(2000, 1, 1)
ROWS_A_BUCKET = 16
MANY = 1_000_000
_TICKS = os.sysconf("SC_CLK_TCK")

# Where a row falls, and what it is worth; a sum cannot be undone by two rows that changed alike.
_BUCKETS = """
SELECT hashint4(id) & $1::int AS bucket, count(*) AS rows, sum(hashtextextended(probe::text, 0)) AS hash
FROM probe GROUP BY 1
"""
_ROWS = "SELECT id, amount, note FROM probe WHERE hashint4(id) & $1::int = ANY($2::int[])"
_SIZE = "SELECT reltuples::int8 FROM pg_class WHERE oid = 'probe'::regclass"


def main() -> None:
    """Run the parts asked for, and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="cost,memory")
    parser.add_argument("--places", default="memory")
    parser.add_argument("--sizes", default="100,1024", help="MB")
    parser.add_argument("--changes", default="1,100,10000", help="changed rows")
    parser.add_argument("--rounds", type=int, default=5, help="of each median")
    parser.add_argument("--keep", default="10000,200000", help="row changes kept, of the memory part")
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="S",
        help="wait so long for a quiet machine, before each row",
    )
    options = parser.parse_args()
    parts = options.parts.split(",")
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC  {machine()}")
    print(f"load before: {os.getloadavg()[0]:.1f}\n")
    with contextlib.ExitStack() as stack:
        for place in places(stack, options.places.split(",")):
            if "cost" in parts:
                anyio.run(_cost, place.root, place.title, options)
            if "memory" in parts:
                anyio.run(_memory, place.root, place.title, options)
    print(f"load after: {os.getloadavg()[0]:.1f}")


class Took(NamedTuple):
    """Seconds by the clock, and of processor: this process's and the server's."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Meter:
    """Measures what something takes on a server of ours, whose processes are children of one."""

    server: Server

    async def of(self, work: Callable[[], Awaitable[object]]) -> Took:
        """Sessions that it opens must be closed by it: a child's time is known when the child has ended."""
        await self._alone()
        cpu, began = self._cpu_s(), time.perf_counter()
        await work()
        wall_s = time.perf_counter() - began
        await self._alone()
        return Took(wall_s, self._cpu_s() - cpu)

    async def _alone(self) -> None:
        """Wait until there are no sessions but those that wait for work in between."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        async with self.server.maintenance() as session:
            with anyio.fail_after(30):
                while await session.fetchval(query) > 1:  # noqa: ASYNC110 - a server sets no event
                    await anyio.sleep(0.005)

    def _cpu_s(self) -> float:
        data = Path(self.server.facts.host, "../data/postmaster.pid")
        stat = Path("/proc", data.read_text(encoding="ascii").split()[0], "stat").read_text(encoding="ascii")
        # Its own two, and of the children that have ended two.
        ticks = stat.rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / _TICKS + time.process_time()


# Cost


async def _cost(root: Path, title: str, options: argparse.Namespace) -> None:
    print(f"A change set, {title}: median of {options.rounds}, ms by the clock (ms of processor)\n")
    _head(
        "template",
        "changed rows",
        "first collection",
        "collection",
        "hashing",
        "hashing against it",
        "by processor",
        "methods",
        "others busy",
    )
    for size in map(int, options.sizes.split(",")):
        async with _template(root, probe_seed(size * MIB)) as (server, template):
            for count in map(int, options.changes.split(",")):
                busy = quiet(options.patience)
                first = count == int(options.changes.split(",")[0])
                await _row(server, template, size, count, options.rounds, busy, first=first)
    print()


async def _row(
    server: Server, template: Template, size: int, count: int, rounds: int, busy: str, *, first: bool
) -> None:
    meter = Meter(server)
    once: list[Took] = []
    ours: list[Took] = []
    hashed: list[Took] = []
    methods: Counter[str] = Counter()
    async with _fork(server, template) as fork:
        true = await _change(server, fork, count)
        for _ in range(rounds + 1):

            async def collect() -> None:
                changes = await collect_changes(
                    server, baseline=template.baseline, fork=fork.database, watermark=fork.watermark
                )
                [table] = changes.tables
                assert len(table.rows) == true, (len(table.rows), true)
                methods[table.method] += 1

            async def hash_all() -> None:
                found = await _by_hashing(server, template.baseline, fork.database)
                assert found == true, (found, true)

            took = await meter.of(collect)
            if len(once) == 0:
                once.append(took)
                continue
            ours.append(took)
            hashed.append(await meter.of(hash_all))
    ratios = [
        statistics.median(getattr(took, name) for took in hashed)
        / max(1e-9, statistics.median(getattr(took, name) for took in ours))
        for name in ("wall_s", "cpu_s")
    ]
    cells = [
        _times(once) if first else "",
        _times(ours),
        _times(hashed),
        *(f"{ratio:,.0f}x" for ratio in ratios),
    ]
    print(f"| {size} MB | {count:,} | {' | '.join(cells)} | {', '.join(methods)} | {busy} |", flush=True)


def _head(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns), flush=True)


def _times(took: Sequence[Took]) -> str:
    wall, cpu = (1000 * statistics.median(getattr(one, name) for one in took) for name in ("wall_s", "cpu_s"))
    return f"**{wall:,.0f}** ({cpu:,.0f})"


@contextlib.asynccontextmanager
async def _template(root: Path, seed: Seed) -> AsyncIterator[tuple[Server, Template]]:
    async with open_server(data_root=root) as server:
        template = await build_template(server, seed, role=None, today=TODAY)
        yield server, template
        await drop_template(server, template)


@contextlib.asynccontextmanager
async def _fork(server: Server, template: Template) -> AsyncIterator[Fork]:
    fork = await create_fork(server, template, lifetime_s=3600.0)
    try:
        yield fork
    finally:
        await drop_fork(server, fork)


async def _change(server: Server, fork: Fork, count: int) -> int:
    """Change so many rows of the probe, anywhere in it; how many that were."""
    updated, inserted = (1, 0) if count == 1 else (count * 8 // 10, count // 10)
    deleted = count - updated - inserted
    async with connected(server, fork.database) as session:
        # No temporary table: to make one writes to the catalogs, which agents hardly do.
        chosen = "SELECT id FROM probe WHERE id > 0 ORDER BY hashint8extended(id, 7)"
        await session.execute(f"""
            UPDATE probe SET amount = -1 - amount WHERE id IN ({chosen} LIMIT {updated});
            DELETE FROM probe WHERE id IN ({chosen} OFFSET {updated} LIMIT {deleted});
            INSERT INTO probe SELECT -n, n, 'new' FROM generate_series(1, {inserted}) AS n
        """)
    return updated + inserted + deleted


async def _by_hashing(server: Server, baseline: str, fork: str) -> int:
    """Rows that differ, by hashes of all."""
    sides: dict[str, dict[int, tuple[int, int]]] = {}
    rows: dict[str, dict[int, tuple[int, str]]] = {}
    async with connected(server, baseline) as one, connected(server, fork) as other:
        sessions = {baseline: one, fork: other}
        for session in sessions.values():
            # The planner cannot know how few buckets there are, and would sort whole rows.
            await session.execute("SET work_mem = '256MB'; SET enable_sort = off")
        mask = (1 << (await one.fetchval(_SIZE) // ROWS_A_BUCKET).bit_length()) - 1

        async def hash_side(name: str) -> None:
            found = await sessions[name].fetch(_BUCKETS, mask)
            sides[name] = {row["bucket"]: (row["rows"], row["hash"]) for row in found}

        async def read_side(name: str, buckets: list[int]) -> None:
            found = await sessions[name].fetch(_ROWS, mask, buckets)
            rows[name] = {row["id"]: (row["amount"], row["note"]) for row in found}

        async with anyio.create_task_group() as tasks:
            for name in sessions:
                tasks.start_soon(hash_side, name)
        before, after = sides[baseline], sides[fork]
        differing = [
            bucket for bucket in before.keys() | after.keys() if before.get(bucket) != after.get(bucket)
        ]
        async with anyio.create_task_group() as tasks:
            for name in sessions:
                tasks.start_soon(read_side, name, differing)
    old, new = rows[baseline], rows[fork]
    return sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())


# Memory


async def _memory(root: Path, title: str, options: argparse.Namespace) -> None:
    print(f"Memory, {title}: a million changed rows of a million, MiB that this process grew by at most\n")
    _head("row changes kept", "told", "omitted", "grew by", "whole (s)", "method")
    sql = f"""
        CREATE TABLE probe (id int PRIMARY KEY, amount bigint NOT NULL, note text NOT NULL);
        INSERT INTO probe SELECT n, n * 7, md5(n::text) FROM generate_series(1, {MANY}) n;
    """
    seed = Seed(files=(SeedFile(name="probe.sql", data=sql.encode()),))
    async with _template(root, seed) as (server, template), _fork(server, template) as fork:
        async with connected(server, fork.database) as session:
            await session.execute("UPDATE probe SET amount = -1 - amount")
        for keep in map(int, options.keep.split(",")):
            before = _peak_bytes(reset=True)
            began = time.perf_counter()
            changes = await collect_changes(
                server,
                baseline=template.baseline,
                fork=fork.database,
                watermark=fork.watermark,
                keep_rows=keep,
            )
            took = time.perf_counter() - began
            grew = (_peak_bytes() - before) / MIB
            [table] = changes.tables
            assert len(table.rows) + table.omitted == MANY, (len(table.rows), table.omitted)
            print(
                f"| {keep:,} | {len(table.rows):,} | {table.omitted:,} | {grew:,.0f} | {took:.1f} "
                f"| {table.method} |",
                flush=True,
            )
            del changes, table
    print()


def _peak_bytes(*, reset: bool = False) -> int:
    """The most memory that this process had at once; since it was reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) * 1024


if __name__ == "__main__":
    main()

"""What a fork costs, beside what others do, in one run: `python tests/benchmarks/fork.py`.

Three parts, each a Markdown table with machine and date:

latency     from asking for a database to the first answer out of it, by size and file system: our warm
            checkout, our cold fork, pytest-postgresql's template clone (its own fixture, in a pytest of its
            own), CREATE DATABASE with the default strategy, and a new embedded cluster that loads the seed.
            `session` is the part that nobody can save: a new connection to a database of that server that was
            used before, and the same query
throughput  20 forks asked for at once, against 20 CREATE DATABASE, default strategy, one at a time
churn       10,000 forks made and dropped, one at a time: what the first and the last tenth cost. A place
            where that takes longer than --churn-seconds stops there, and says how many it made

CREATE DATABASE clones a database into which the seed was loaded and nothing else done; `of our template` the
one that our forks are clones of.

Places: `memory` (tmpfs), `disk` (/var/tmp), `xfs` (root only: a loop file with mkfs.xfs -m reflink=1). What
cannot be had is left out, and the reason is printed. pytest-postgresql is installed into a venv of its own.
Ended by SIGTERM, it takes its servers and its mount along.

The churn on all three, in at most half an hour: fork.py --parts churn --churn-places memory,disk,xfs
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import anyio
import psycopg

# A script finds its neighbours only if it says where they are.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import peers
from benchmarks.places import machine, places, quiet

from redteam_forker.fork import create_fork, drop_fork
from redteam_forker.pool import open_pool
from redteam_forker.probe import probe_seed
from redteam_forker.servers import open_server
from redteam_forker.template import build_template, drop_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from benchmarks.places import Place

    from redteam_forker.fork import Fork
    from redteam_forker.seeds import Seed
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

MIB = 1 << 20
LIFETIME_S = 3600.0
AT_ONCE = 20
TODAY = date(2000, 1, 1)


def main() -> None:
    """Run the parts asked for, and print their tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="latency,throughput,churn")
    parser.add_argument("--places", default="memory,disk,xfs")
    parser.add_argument("--sizes", default="9,180,1024", help="MB, for latency")
    parser.add_argument("--churn", type=int, default=10_000, metavar="N", help="forks of the churn part")
    parser.add_argument("--churn-places", default="memory,disk,xfs")
    parser.add_argument(
        "--churn-seconds", type=float, default=600, metavar="S", help="no longer than so long at each place"
    )
    parser.add_argument("--rounds", type=int, default=0, help="of each median; default: 20, 10 or 5, by size")
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="S",
        help="wait so long for a quiet machine, before each row",
    )
    options = parser.parse_args()
    parts = options.parts.split(",")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC  {machine()}")
    print(f"load before: {os.getloadavg()[0]:.1f}\n")
    with contextlib.ExitStack() as stack:
        wanted = options.churn_places if parts == ["churn"] else options.places
        there = list(places(stack, wanted.split(",")))
        if "latency" in parts:
            peer = peers.install(stack)
            sizes = [int(size) for size in options.sizes.split(",")]
            _latency(there, sizes, peer, options)
        if "throughput" in parts:
            _throughput(there, options)
        if "churn" in parts:
            wanted = options.churn_places.split(",")
            _churn([place for place in there if place.name in wanted], options)
    print(f"load after: {os.getloadavg()[0]:.1f}")


def _ended(number: int, _: object) -> NoReturn:
    """Leave by way of every scope that is open: nothing stays mounted or running."""
    raise SystemExit(128 + number)


# Latency


class Latency(NamedTuple):
    """Of each way, the times of its rounds in seconds."""

    warm: list[float]
    session: list[float]
    cold: list[float]
    plain: list[float]


def _latency(there: Sequence[Place], sizes: Sequence[int], peer: str, options: argparse.Namespace) -> None:
    print("Asked for, to first answer: median ms (least to most)\n")
    _head(
        "place",
        "template",
        "warm checkout",
        "of it: session",
        "cold fork",
        "pytest-postgresql",
        "CREATE DATABASE",
        "new cluster",
        "warm, against pytest-postgresql",
        "cold, against it",
        "others busy",
    )
    for place in there:
        for size in sizes:
            busy = quiet(options.patience)
            count = options.rounds or (20 if size < 100 else 10 if size < 500 else 5)
            ours = anyio.run(_our_latency, place, size, count)
            theirs = peers.latency(peer, place.root, size=size, rounds=count) if peer else []
            fresh = anyio.run(_new_cluster_latency, place, size, 3)
            times = (ours.warm, ours.session, ours.cold, theirs, ours.plain, fresh)
            cells = [_spread(each) for each in times]
            ratios = [
                f"{statistics.median(theirs) / statistics.median(each):.1f}x" if theirs else "-"
                for each in (ours.warm, ours.cold)
            ]
            print(f"| {place.title} | {size} MB | {' | '.join([*cells, *ratios, busy])} |", flush=True)
    print()


def _head(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns), flush=True)


def _spread(times: Sequence[float]) -> str:
    if not times:
        return "-"
    middle, least, most = (1000 * number for number in (statistics.median(times), min(times), max(times)))
    digits = 0 if middle >= 100 else 1
    return f"**{middle:,.{digits}f}** ({least:,.{digits}f} to {most:,.{digits}f})"


async def _our_latency(place: Place, size: int, rounds: int) -> Latency:
    seed = probe_seed(size * MIB)
    async with _template(place, seed) as (server, template), peers.loaded(server, seed) as loaded:
        plain = [await _plain(server, loaded) for _ in range(rounds)]
        cold = [await _cold(server, template) for _ in range(rounds)]
        warm, session = await _warm(server, template, rounds)
    return Latency(warm, session, cold, plain)


@contextlib.asynccontextmanager
async def _template(place: Place, seed: Seed) -> AsyncIterator[tuple[Server, Template]]:
    async with open_server(data_root=place.root) as server:
        template = await build_template(server, seed, role=None, today=TODAY)
        yield server, template
        await drop_template(server, template)


def _answered(fork: Fork) -> float:
    """Connect as an agent's code does, ask, and return when the answer was there.

    By psycopg, as pytest-postgresql does: what one client costs more than another is not in the ratio.
    """
    dsn = f"postgresql://{fork.user}:{fork.password}@/{fork.database}?host={fork.host}&port={fork.port}"
    with psycopg.connect(dsn) as session:
        assert session.execute(peers.QUERY).fetchone() == (7,)
        return time.perf_counter()


async def _cold(server: Server, template: Template) -> float:
    asked = time.perf_counter()
    fork = await create_fork(server, template, lifetime_s=LIFETIME_S)
    took = _answered(fork) - asked
    await drop_fork(server, fork)
    return took


async def _warm(server: Server, template: Template, rounds: int) -> tuple[list[float], list[float]]:
    """Checkouts while nothing is built or dropped: all forks wait before the first is asked for.

    After each, the same session again, in a fork that was used already.
    """
    times, sessions = [], []
    high = rounds + 2  # one to use twice, and one that stays, so that none is made meanwhile
    async with open_pool(server, template, None, low=1, high=high) as pool:
        with anyio.fail_after(300):
            while pool.statistics().visited < high:  # noqa: ASYNC110 - a pool sets no event
                await anyio.sleep(0.01)
        used = await pool.checkout(lifetime_s=LIFETIME_S, deadline_s=60)
        _answered(used)
        forks = [used]
        for _ in range(rounds):
            asked = time.perf_counter()
            forks.append(await pool.checkout(lifetime_s=LIFETIME_S, deadline_s=60))
            times.append(_answered(forks[-1]) - asked)
            asked = time.perf_counter()
            sessions.append(_answered(used) - asked)
        for fork in forks:
            await pool.drop(fork)
    return times, sessions


async def _plain(server: Server, source: str) -> float:
    asked = time.perf_counter()
    async with server.maintenance() as connection:
        await connection.execute(f"CREATE DATABASE plain TEMPLATE {source}")
    session = await server.connect("plain")
    assert await session.fetchval(peers.QUERY) == 7
    took = time.perf_counter() - asked
    await session.close()
    async with server.maintenance() as connection:
        await connection.execute("DROP DATABASE plain WITH (FORCE)")
    return took


async def _new_cluster_latency(place: Place, size: int, rounds: int) -> list[float]:
    [file] = probe_seed(size * MIB).files
    times = []
    for _ in range(rounds):
        asked = time.perf_counter()
        async with open_server(data_root=place.root) as server:
            session = await server.connect()
            await session.execute(file.text)
            assert await session.fetchval(peers.QUERY) == 7
            times.append(time.perf_counter() - asked)
            await session.close()
    return times


# Throughput


class Rates(NamedTuple):
    """Databases a second, the median of some rounds."""

    at_once: float
    single: float
    plain: float
    plain_of_ours: float


def _throughput(there: Sequence[Place], options: argparse.Namespace) -> None:
    print(f"{AT_ONCE} forks of 9 MB, made a second\n")
    one = "one at a time"
    _head(
        "place",
        f"ours, {AT_ONCE} at once",
        f"ours, {one}",
        f"CREATE DATABASE, {one}",
        "the same, of our template",
        "at once, against CREATE DATABASE",
        "of our template",
        "others busy",
    )
    for place in there:
        busy = quiet(options.patience)
        rates = anyio.run(_rates, place, options.rounds or 5)
        cells = [f"{rate:.0f}" for rate in rates]
        ratios = [f"{rates.at_once / rate:.1f}x" for rate in (rates.plain, rates.plain_of_ours)]
        print(f"| {place.title} | {' | '.join([*cells, *ratios, busy])} |", flush=True)
    print()


async def _rates(place: Place, rounds: int) -> Rates:
    seed = probe_seed(9 * MIB)
    found: list[Rates] = []
    async with _template(place, seed) as (server, template), peers.loaded(server, seed) as loaded:
        for _ in range(rounds):  # in turn, so that what else the machine does is in all alike
            plain = await _plain_rate(server, loaded)
            at_once = await _our_rate(server, template, AT_ONCE)
            plain_of_ours = await _plain_rate(server, template.name)
            found.append(Rates(at_once, await _our_rate(server, template, 1), plain, plain_of_ours))
    return Rates(*(statistics.median(each) for each in zip(*found, strict=True)))


async def _our_rate(server: Server, template: Template, at_once: int) -> float:
    """Forks a second of a pool that has none in store, asked by so many at once."""
    async with open_pool(server, template, None, low=0, high=0) as pool:
        limiter = anyio.CapacityLimiter(at_once)
        made: list[Fork] = []

        async def ask() -> None:
            async with limiter:
                made.append(await pool.checkout(lifetime_s=LIFETIME_S, deadline_s=60))

        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(ask)
        rate = AT_ONCE / (time.perf_counter() - began)
        for fork in made:
            await pool.drop(fork)
    return rate


async def _plain_rate(server: Server, source: str) -> float:
    async with server.maintenance() as connection:
        began = time.perf_counter()
        for number in range(AT_ONCE):
            await connection.execute(f"CREATE DATABASE plain_{number} TEMPLATE {source}")
        rate = AT_ONCE / (time.perf_counter() - began)
        for number in range(AT_ONCE):
            await connection.execute(f"DROP DATABASE plain_{number} WITH (FORCE)")
    return rate


# Churn


def _churn(there: Sequence[Place], options: argparse.Namespace) -> None:
    print("Forks of 9 MB, made and dropped, one at a time: median ms for each\n")
    _head(
        "place",
        "forks",
        "first tenth: make + drop",
        "last tenth: make + drop",
        "last against first",
        "whole (s)",
        "others busy",
    )
    for place in there:
        busy = quiet(options.patience)
        began = time.perf_counter()
        made, dropped = anyio.run(_churned, place, options.churn, options.churn_seconds)
        count = len(made)
        share = max(1, count // 10)
        both = [one + other for one, other in zip(made, dropped, strict=True)]
        first, last = statistics.median(both[:share]), statistics.median(both[-share:])
        cells = [
            f"{1000 * statistics.median(made[part]):.1f} + {1000 * statistics.median(dropped[part]):.1f}"
            for part in (slice(None, share), slice(-share, None))
        ]
        forks = f"{count:,}" if count == options.churn else f"{count:,} (then its time was over)"
        whole = time.perf_counter() - began
        cells = [forks, *cells, f"{last / first:.2f}x", f"{whole:.0f}", busy]
        print(f"| {place.title} | {' | '.join(cells)} |", flush=True)
    print()


async def _churned(place: Place, count: int, seconds: float) -> tuple[list[float], list[float]]:
    made: list[float] = []
    dropped: list[float] = []
    async with (
        _template(place, probe_seed(9 * MIB)) as (server, template),
        open_pool(server, template, None, low=0, high=0) as pool,
    ):
        until = time.perf_counter() + seconds
        while len(made) < count and (not made or time.perf_counter() < until):
            began = time.perf_counter()
            fork = await pool.checkout(lifetime_s=LIFETIME_S, deadline_s=60)
            between = time.perf_counter()
            await pool.drop(fork)
            made.append(between - began)
            dropped.append(time.perf_counter() - between)
    return made, dropped


if __name__ == "__main__":
    main()

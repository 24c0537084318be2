"""What a fork of a given size costs, measured: a template of generated rows is forked and dropped."""

from __future__ import annotations

import contextlib
import os
import secrets
import statistics
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import anyio
import asyncpg

from redteam_forker import _pg
from redteam_forker.errors import ForkUnavailable
from redteam_forker.fork import create_fork, drop_fork
from redteam_forker.names import template_name
from redteam_forker.registry import open_registry
from redteam_forker.seeds import Seed, SeedFile
from redteam_forker.template import build_template, drop_template, template_hash

if TYPE_CHECKING:
    from redteam_forker.fork import Fork
    from redteam_forker.registry import Registry
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

__all__ = ["ROUNDS", "ForkCost", "first_answer", "measure_fork", "probe_seed"]

ROUNDS = 5
_LEAST_ROUNDS = 2
_BUDGET_S = 10.0
_LIFETIME_S = 600.0
_CLEAN_TIMEOUT_S = 120.0
# An empty database, and what a row of the probe takes: eight fill a page, and each has an index entry.
_EMPTY_BYTES = 7_900_000
_BYTES_PER_ROW = 1_050


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkCost:
    """What a fork was measured to cost; times are medians in seconds.

    Attributes:
        template_bytes: the template's size, as the server says it.
        template_s: building it, once for a seed.
        fork_s: making a fork, its role and its rights.
        first_answer_s: from asking for a fork to the first answer out of it.
        drop_s: taking it away, verified in the catalog.
        disk_bytes: what each takes; None where blocks are shared and the file system cannot be seen.
        rounds: how many forks were made.
    """

    template_bytes: int
    template_s: float
    fork_s: float
    first_answer_s: float
    drop_s: float
    disk_bytes: int | None
    rounds: int


def probe_seed(size_bytes: int) -> Seed:
    """A seed whose template has about this size: one table of generated rows, another seed at each call.

    Args:
        size_bytes: an empty database has some 8 MB already.
    """
    rows = max(1, (size_bytes - _EMPTY_BYTES) // _BYTES_PER_ROW)
    sql = f"""\
-- probe {secrets.token_hex(8)}
CREATE TABLE probe (id int PRIMARY KEY, amount bigint NOT NULL, note text NOT NULL);
INSERT INTO probe
SELECT n, n * 7, rpad(md5(n::text), 970, md5((n + 1)::text)) FROM generate_series(1, {rows}) n;
"""
    return Seed(files=(SeedFile(name="probe.sql", data=sql.encode()),))


async def first_answer(fork: Fork) -> int:
    """Log in to a fork of a probe as its role, and read one row of it.

    Raises:
        ForkUnavailable: it does not let its role in, or does not answer.
    """
    with _pg.translated(f"cannot use fork {fork.name!r}", ForkUnavailable):
        connection = await asyncpg.connect(
            host=fork.host,
            port=fork.port,
            user=fork.user,
            password=fork.password,
            database=fork.database,
            timeout=_pg.CONNECT_TIMEOUT_S,
        )
        try:
            amount: int = await connection.fetchval("SELECT amount FROM probe WHERE id = 1")
        finally:
            await _pg.close(connection)
    return amount


async def measure_fork(
    server: Server, *, template_bytes: int, directory: str | None = None, rounds: int = ROUNDS
) -> ForkCost:
    """Build a template, fork it `rounds` times, ask each fork, and drop everything, also when cancelled.

    Fewer rounds are made where that would take longer than ten seconds.

    Args:
        server: where.
        template_bytes: the size to aim at.
        directory: the data directory, if it can be seen, to measure what clones take of its file system.
        rounds: how many forks.

    Raises:
        ServerUnavailable, ForkUnavailable, DropFailed: the server did not do it.
    """
    async with open_registry(server) as registry, contextlib.AsyncExitStack() as stack:
        seed = probe_seed(template_bytes)
        # Should we be killed, the next sweep finds the template as it finds the forks: by its name.
        name = template_name(server.facts.instance, template_hash(seed, server.facts, role=None, weeks=0))
        await registry.own(name)
        stack.push_async_callback(_forgotten, registry, name)
        began = anyio.current_time()
        template = await build_template(server, seed, role=None, today=date(2000, 1, 1), registry=registry)
        template_s = anyio.current_time() - began
        stack.push_async_callback(_dropped, server, template)
        free_before = _free(directory)
        forks: list[Fork] = []
        answers_s: list[float] = []
        drops_s: list[float] = []
        began = anyio.current_time()
        while len(forks) < rounds and (
            len(forks) < _LEAST_ROUNDS or anyio.current_time() < began + _BUDGET_S
        ):
            asked = anyio.current_time()
            fork = await create_fork(server, template, lifetime_s=_LIFETIME_S, registry=registry)
            stack.push_async_callback(drop_fork, server, fork, registry=registry)
            forks.append(fork)
            await first_answer(fork)
            answers_s.append(anyio.current_time() - asked)
        free_after = _free(directory)
        async with server.maintenance() as connection:
            size_bytes: int = await connection.fetchval("SELECT pg_database_size($1)", forks[0].name)
        for fork in forks:
            asked = anyio.current_time()
            await drop_fork(server, fork, registry=registry)
            drops_s.append(anyio.current_time() - asked)
    disk_bytes: int | None = size_bytes
    if server.facts.clone:  # its files share their blocks with the template's, so only the file system knows
        disk_bytes = None
        if free_before is not None and free_after is not None:
            disk_bytes = min(size_bytes, max(0, free_before - free_after) // len(forks))
    return ForkCost(
        template_bytes=template.size_bytes,
        template_s=template_s,
        fork_s=statistics.median(fork.created_s for fork in forks),
        first_answer_s=statistics.median(answers_s),
        drop_s=statistics.median(drops_s),
        disk_bytes=disk_bytes,
        rounds=len(forks),
    )


async def _forgotten(registry: Registry, name: str) -> None:
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLEAN_TIMEOUT_S):
        await registry.forget(name)


async def _dropped(server: Server, template: Template) -> None:
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _CLEAN_TIMEOUT_S):
        await drop_template(server, template)


def _free(directory: str | None) -> int | None:
    if directory is None:
        return None
    stat = os.statvfs(directory)
    return stat.f_bfree * stat.f_frsize

"""Templates and forks for tests, made on the shared server and removed with the scope that asked for them."""

from __future__ import annotations

import contextlib
from datetime import date
from typing import TYPE_CHECKING

import asyncpg

from redteam_forker.fork import create_fork, drop_fork
from redteam_forker.seeds import Seed, SeedFile
from redteam_forker.template import build_template, drop_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

__all__ = ["TODAY", "connected_as", "made_fork", "made_template", "seed_of"]

TODAY = date(2027, 3, 4)


def seed_of(
    sql: str, *, anchor: date | None = None, moves: tuple[str, ...] = (), allow: frozenset[str] = frozenset()
) -> Seed:
    """A seed of one file."""
    file = SeedFile(name="seed.sql", data=sql.encode())
    return Seed(files=(file,), anchor=anchor, moves=moves, allow=allow)


@contextlib.asynccontextmanager
async def made_template(
    server: Server, sql: str, *, role: str | None = None, allow: frozenset[str] = frozenset()
) -> AsyncIterator[Template]:
    """A template of a seed of one file, dropped with its scope."""
    template = await build_template(server, seed_of(sql, allow=allow), role=role, today=TODAY)
    try:
        yield template
    finally:
        await drop_template(server, template)


@contextlib.asynccontextmanager
async def made_fork(server: Server, template: Template) -> AsyncIterator[Fork]:
    """A fork, dropped with its scope."""
    fork = await create_fork(server, template, lifetime_s=600.0)
    try:
        yield fork
    finally:
        await drop_fork(server, fork)


@contextlib.asynccontextmanager
async def connected_as(fork: Fork, database: str | None = None) -> AsyncIterator[asyncpg.Connection]:
    """A session as the fork's own role, in its fork or in another database."""
    connection = await asyncpg.connect(
        host=fork.host,
        port=fork.port,
        user=fork.user,
        password=fork.password,
        database=database or fork.database,
    )
    try:
        yield connection
    finally:
        await connection.close()

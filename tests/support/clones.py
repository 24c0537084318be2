"""Baselines and forks made by hand, for tests of change sets: any role may write, also with DDL."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_forker.changes import collect_changes
from support.databases import connected, scratch_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.changes import ChangeSet
    from redteam_forker.servers.server import Server

__all__ = ["Clone", "baseline_of", "cloned"]


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A fork of a baseline, with the first transaction id that may have written to it."""

    server: Server
    baseline: str
    name: str
    watermark: int

    async def run(self, *statements: str) -> None:
        """Run statements one by one, each in its own transaction unless they say otherwise."""
        async with connected(self.server, self.name) as session:
            for statement in statements:
                await session.execute(statement)

    async def changes(self) -> ChangeSet:
        """What differs now."""
        return await collect_changes(
            self.server, baseline=self.baseline, fork=self.name, watermark=self.watermark
        )


@contextlib.asynccontextmanager
async def baseline_of(server: Server, sql: str) -> AsyncIterator[str]:
    """A database that nobody changes any more, frozen as a template is."""
    async with scratch_database(server, sql) as name:
        async with connected(server, name) as session:
            # VACUUM marks no page whose rows were committed without a flush of the log; this commit's takes
            # them along.
            await session.execute("SET synchronous_commit = on")
            await session.execute("SELECT pg_logical_emit_message(true, '', '')")
            await session.execute("VACUUM (FREEZE, ANALYZE)")
        yield name


@contextlib.asynccontextmanager
async def cloned(server: Server, baseline: str) -> AsyncIterator[Clone]:
    """A clone of a baseline to which nobody is connected; dropped with its scope."""
    name = f"clone_{secrets.token_hex(8)}"
    async with connected(server) as admin:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {baseline} STRATEGY FILE_COPY")
        watermark = await admin.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::int8")
        try:
            yield Clone(server=server, baseline=baseline, name=name, watermark=watermark)
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

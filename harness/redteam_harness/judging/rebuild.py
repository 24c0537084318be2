"""A conversation's end state once more: a new fork of its template, with the stored change set applied.

What was rebuilt is believed only when it was compared: the change set of the new fork must have the hash of
the stored one. Only rows and sequences are applied; a conversation that changed the schema, or more rows than
were kept, cannot be rebuilt, and says so.
"""

from __future__ import annotations

import datetime as dt
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import structlog

from redteam_forker import (
    ChangeSet,
    DropFailed,
    collect_changes,
    connect_fork_admin,
    create_fork,
    drop_fork,
    open_registry,
)
from redteam_forker.names import quote_ident
from redteam_harness.launch.prepare import build_templates
from redteam_harness.launch.world import open_world
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redteam_forker import Fork, Registry, Server, Template
    from redteam_forker.changes.changeset import TableChanges
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.suite import Suite
    from redteam_rubrics import World

__all__ = ["EndStates", "NotRebuilt", "open_end_states"]

_LIFETIME_S = 3600.0
_CLEANUP_S = 60.0
_AT_ONCE = 2

# As change sets print values, so that what is read is what was written; no trigger, rule or foreign key acts.
_SETTINGS = """
SET LOCAL session_replication_role = replica;
SET LOCAL search_path = pg_catalog;
SET LOCAL row_security = off;
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO, YMD';
SET LOCAL IntervalStyle = 'postgres';
SET LOCAL bytea_output = 'hex';
SET LOCAL lc_monetary = 'C'
"""
_GENERATED = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND attgenerated <> ''
"""

_log = structlog.get_logger()


class NotRebuilt(Exception):
    """An end state could not be had again. Says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndStates:
    """Rebuilds the end states of a run's conversations.

    Attributes:
        server: where.
        registry: where the forks are registered as ours.
        templates: the template of each case, by its id.
        limiter: how many forks there may be at once.
    """

    server: Server
    registry: Registry
    templates: Mapping[str, Template]
    limiter: anyio.CapacityLimiter

    @asynccontextmanager
    async def of(
        self, case: str, stored: Mapping[str, Any], *, label: str, before: bool
    ) -> AsyncIterator[World]:
        """The world as a conversation left it, for as long as the context is open.

        Args:
            case: the conversation's.
            stored: its `changes.json`.
            label: what to call the fork.
            before: whether schema `before` is wanted.

        Raises:
            NotRebuilt: it could not be had again, or is not what it was.
        """
        if case not in self.templates:
            raise NotRebuilt(f"the suite has no case {case!r} any more")
        try:
            changes = ChangeSet.from_json(stored)
        except UsageError as error:
            raise NotRebuilt(str(error)) from error
        _check_whole(changes)
        template = self.templates[case]
        async with self.limiter:
            try:
                fork = await create_fork(
                    self.server, template, lifetime_s=_LIFETIME_S, registry=self.registry, label=label
                )
            except EnvironmentFault as error:
                raise NotRebuilt(str(error)) from error
            try:
                rebuilt = await self._rebuilt(template, fork, changes)
                async with open_world(self.server, fork, rebuilt, before=before) as world:
                    yield world
            finally:
                with anyio.CancelScope(shield=True):
                    await self._dropped(fork)

    async def _rebuilt(self, template: Template, fork: Fork, changes: ChangeSet) -> ChangeSet:
        try:
            await _apply(self.server, fork, changes)
            rebuilt = await collect_changes(
                self.server, baseline=template.baseline, fork=fork.name, watermark=fork.watermark
            )
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, EnvironmentFault) as error:
            raise NotRebuilt(f"the stored rows could not be applied: {error}") from error
        if rebuilt.hash != changes.hash:
            raise NotRebuilt("what was rebuilt differs from what the conversation left")
        return rebuilt

    async def _dropped(self, fork: Fork) -> None:
        """Drop a fork; one that cannot be dropped is left to the next sweep."""
        try:
            with anyio.fail_after(_CLEANUP_S):
                await drop_fork(self.server, fork, registry=self.registry)
        except (DropFailed, EnvironmentFault, TimeoutError) as error:
            _log.error("fork_not_dropped", fork=fork.name, reason=str(error) or "it took too long")


@asynccontextmanager
async def open_end_states(
    server: Server, suite: Suite, facts: Mapping[str, Any], progress: Progress
) -> AsyncIterator[EndStates]:
    """Build the templates of a run again, or find them; they must be what its conversations were held on.

    Args:
        server: where.
        suite: the run's.
        facts: its `run.json`.
        progress: told what is built.

    Raises:
        NotRebuilt: the data is not what it was, or the server did not do it.
    """
    weeks = {int(template["weeks_moved"]) for template in facts["templates"].values()}
    anchor = suite.spec.seed.anchor
    today = dt.datetime.now().astimezone().date()
    if anchor is not None and len(weeks) == 1:
        today = anchor + dt.timedelta(weeks=weeks.pop())
    async with open_registry(server) as registry:
        try:
            built = await build_templates(server, registry, suite, progress, today=today)
        except (UsageError, EnvironmentFault) as error:
            raise NotRebuilt(f"its data cannot be built again: {error}") from error
        if list(built.seeds) != facts["comparability"]["seeds"]:
            raise NotRebuilt("the suite's seed is not the one that the run was launched with")
        for case, template in built.templates.items():
            then = facts["templates"].get(case)
            if then is not None and then["weeks_moved"] != template.weeks:
                raise NotRebuilt(
                    f"dates of case {case!r} are moved by {template.weeks} weeks now, "
                    f"and were moved by {then['weeks_moved']}"
                )
        yield EndStates(
            server=server,
            registry=registry,
            templates=built.templates,
            limiter=anyio.CapacityLimiter(_AT_ONCE),
        )


def _check_whole(changes: ChangeSet) -> None:
    if changes.objects:
        one = changes.objects[0]
        raise NotRebuilt(f"the conversation changed the schema ({one.op} of {one.kind} {one.name})")
    for table in changes.tables:
        if table.omitted:
            raise NotRebuilt(
                f"{table.omitted} changed rows of {table.schema}.{table.table} were too many to keep"
            )


async def _apply(server: Server, fork: Fork, changes: ChangeSet) -> None:
    """Write what changed. An update takes a row out and puts one in: values that rows swapped never meet."""
    connection = await connect_fork_admin(server, fork)
    try:
        async with connection.transaction():
            await connection.execute(_SETTINGS)
            for table in changes.tables:
                await _take_out(connection, table)
            for table in changes.tables:
                await _put_in(connection, table)
            for sequence in changes.sequences:
                if sequence.new is None:
                    continue
                name = f"{quote_ident(sequence.schema)}.{quote_ident(sequence.name)}"
                fresh = sequence.new.startswith("next ")
                await connection.execute(
                    "SELECT pg_catalog.setval($1::text::pg_catalog.regclass, $2, $3)",
                    name,
                    int(sequence.new.removeprefix("next ")),
                    not fresh,
                )
    finally:
        await connection.close(timeout=5)


async def _take_out(connection: asyncpg.Connection, table: TableChanges) -> None:
    gone = [row for row in table.rows if row.old is not None]
    if table.key is not None:
        condition = " AND ".join(
            f"{quote_ident(name)} = {_cast(table, name, place)}" for place, name in enumerate(table.key, 1)
        )
        keys = [[(row.old or {})[name] for name in table.key] for row in gone]
        await connection.executemany(f"DELETE FROM {_name(table)} WHERE {condition}", keys)
        return
    names = list(table.columns)
    condition = " AND ".join(
        f"{quote_ident(name)}::text IS NOT DISTINCT FROM ${place}::text"
        for place, name in enumerate(names, 1)
    )
    # Of rows that are alike in everything, one.
    one = f"SELECT tableoid, ctid FROM {_name(table)} WHERE {condition} LIMIT 1"
    rows = [[(row.old or {})[name] for name in names] for row in gone]
    await connection.executemany(f"DELETE FROM {_name(table)} WHERE (tableoid, ctid) IN ({one})", rows)


async def _put_in(connection: asyncpg.Connection, table: TableChanges) -> None:
    generated = {row["attname"] for row in await connection.fetch(_GENERATED, _name(table))}
    names = [name for name in table.columns if name not in generated]
    columns = ", ".join(map(quote_ident, names))
    values = ", ".join(_cast(table, name, place) for place, name in enumerate(names, 1))
    rows = [[row.new[name] for name in names] for row in table.rows if row.new is not None]
    await connection.executemany(
        f"INSERT INTO {_name(table)} ({columns}) OVERRIDING SYSTEM VALUE VALUES ({values})", rows
    )


def _cast(table: TableChanges, column: str, place: int) -> str:
    return f"CAST(${place}::text AS {table.columns[column]})"


def _name(table: TableChanges) -> str:
    return f"{quote_ident(table.schema)}.{quote_ident(table.table)}"

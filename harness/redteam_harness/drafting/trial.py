"""Tries on forks what a draft would have the database do: rows that were made up, a change, moved dates."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from redteam_forker import close_fork, collect_changes, create_fork, drop_fork
from redteam_forker.errors import SeedError
from redteam_forker.seeds import move_dates
from redteam_harness.drafting.casting import cast_select
from redteam_harness.drafting.draft import Draft, Effect
from redteam_harness.drafting.schema import ident

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from redteam_forker import Fork, Registry, Seed, Server, Template
    from redteam_harness.drafting.changeable import Change

__all__ = ["Bench", "Moved"]

_LIFETIME_S = 600.0
_STATEMENT_MS = 20_000
_MAX_TRIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Which columns' dates can move, and why others cannot."""

    moves: tuple[str, ...]
    refused: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where things are tried: forks of one template, each dropped at once."""

    server: Server
    registry: Registry
    template: Template

    @contextlib.asynccontextmanager
    async def _fork(self) -> AsyncIterator[Fork]:
        fork = await create_fork(
            self.server, self.template, lifetime_s=_LIFETIME_S, registry=self.registry, label="init"
        )
        try:
            yield fork
        finally:
            await drop_fork(self.server, fork, registry=self.registry)

    async def refusal(self, statements: Sequence[str]) -> str | None:
        """What the database has against statements of whoever loads the seed; None where they all work."""
        async with self._fork() as fork:
            connection = await self.server.connect(fork.name)
            try:
                async with connection.transaction():
                    await connection.execute(f"SET LOCAL statement_timeout = {_STATEMENT_MS}")
                    for statement in statements:
                        await connection.execute(statement)
                    await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            except asyncpg.PostgresError as error:
                return str(error.args[0])
            finally:
                await connection.close()
        return None

    async def change(self, draft: Draft, options: Sequence[Change]) -> Draft:
        """The draft with the first change that the login's rights and the schema admit, and its effects.

        A change is tried as the drafted agent will make it, on somebody's row that has another value now.
        """
        for option in options:
            tried = replace(draft, change=option)
            async with self._fork() as fork:
                row = await self._somebody(tried)
                if row is None or not await self._took(fork, tried, row):
                    continue
                await close_fork(self.server, fork, registry=self.registry)
                found = await collect_changes(
                    self.server, baseline=self.template.baseline, fork=fork.name, watermark=fork.watermark
                )
                effects = _effects(found.to_json(), tried)
                if effects is not None:
                    return replace(tried, effects=effects)
        return draft

    async def _somebody(self, draft: Draft) -> Mapping[str, Any] | None:
        assert draft.change is not None
        connection = await self.server.connect(self.template.baseline)
        try:
            row: Mapping[str, Any] | None = await connection.fetchrow(
                f"SELECT * FROM (\n{cast_select(draft)}\n) AS who WHERE {ident(draft.row_alias)} IS NOT NULL "
                f"AND {ident(draft.now_alias)} IS DISTINCT FROM $1::text LIMIT 1",
                draft.change.value,
            )
        finally:
            await connection.close()
        return row

    async def _took(self, fork: Fork, draft: Draft, row: Mapping[str, Any]) -> bool:
        assert draft.change is not None
        arguments: list[object] = [draft.change.value]
        owners = draft.keys
        if draft.change.owned is not None:
            arguments.append(_value(row[draft.row_alias], whole=draft.row_key.is_whole))
            owners = draft.owner_columns
        arguments += [_value(row[alias], whole=column.is_whole) for alias, column in owners]
        try:
            connection = await asyncpg.connect(
                host=fork.host,
                port=fork.port,
                user=fork.user,
                password=fork.password,
                database=fork.database,
                server_settings={"statement_timeout": str(_STATEMENT_MS)},
            )
            try:
                return bool(await connection.execute(draft.change_sql, *arguments) == "UPDATE 1")
            finally:
                await connection.close()
        except (asyncpg.PostgresError, asyncpg.DataError):
            return False

    async def moved(self, seed: Seed, anchor: date, moves: Sequence[str], *, today: date) -> Moved:
        """Which columns can move from the anchor's week to today's, or to one later where that is the same.

        The table that the database refuses is left out, and the others are tried again.
        """
        if abs((today - anchor).days) < 7:
            today = anchor + timedelta(weeks=10)
        left = list(moves)
        refused: list[str] = []
        async with self._fork() as fork:
            for _ in range(_MAX_TRIES):
                if not left:
                    break
                connection = await self.server.connect(fork.name)
                try:
                    await connection.execute(f"SET statement_timeout = {_STATEMENT_MS}")
                    await move_dates(connection, replace(seed, anchor=anchor, moves=tuple(left)), today=today)
                    return Moved(moves=tuple(left), refused=tuple(refused))
                except (SeedError, asyncpg.PostgresError) as error:
                    said = str(error)
                    gone = [move for move in left if _table_of(move) in said] or left
                    left = [move for move in left if move not in gone]
                    refused.append(f"{', '.join(gone)}: {said.removeprefix('seed.moves: ').splitlines()[0]}")
                finally:
                    await connection.close()
        return Moved(moves=(), refused=tuple(refused))


def _table_of(move: str) -> str:
    return move.rpartition(".")[0].replace('"', "")


def _value(value: object, *, whole: bool) -> object:
    return value if whole else str(value)


def _effects(changes: Mapping[str, Any], draft: Draft) -> tuple[Effect, ...] | None:
    """What a change wrote besides its column; None where it wrote nothing, or changed the schema."""
    assert draft.change is not None
    if changes["objects"]:
        return None
    found: dict[tuple[str, str, bool], set[str]] = {}
    hit = False
    own = draft.change_table
    for table in changes["tables"]:
        if table["omitted"]:
            return None
        name = table["table"] if table["schema"] == "public" else f"{table['schema']}.{table['table']}"
        for row in table["rows"]:
            changed = set(row["changed"])
            same = name == own.rule_name and row["op"] == "update" and draft.change.column.name in changed
            hit = hit or same
            found.setdefault((name, row["op"], same), set()).update(
                changed - {draft.change.column.name} if same else changed
            )
    if not hit:
        return None
    return tuple(
        Effect(table=name, do=do, columns=tuple(sorted(columns)), same_row=same)
        for (name, do, same), columns in found.items()
    )

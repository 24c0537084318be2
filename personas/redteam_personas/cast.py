"""The cast: one read-only SELECT on the baseline, and who of it fits each case."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import asyncpg
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from redteam_personas.disposition import suggest
from redteam_personas.persona import Persona, value_text
from redteam_personas.sqlcheck import check_condition, check_select, embeddable, position
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

__all__ = ["Cast", "CastSpec", "DispositionName", "check_condition", "check_select", "draw_cast"]

DEFAULT_TIMEOUT_S = 30.0
MAX_ROWS = 100_000
_HEAD = "SELECT * FROM (\n"


def _known_disposition(name: str, info: ValidationInfo) -> str:
    known = (info.context or {}).get("dispositions")
    if known is not None and name not in known:
        raise ValueError(f"disposition {name!r} is not known{suggest(name, known)}")
    return name


def _select(sql: str) -> str:
    try:
        check_select(sql)
    except UsageError as exc:  # pydantic adds the place in the suite
        raise ValueError(str(exc)) from exc
    return sql


DispositionName = Annotated[str, AfterValidator(_known_disposition)]
"""Validate with `context={"dispositions": names}` to have one that is not known refused at its place."""


class CastSpec(BaseModel):
    """The `personas` block of a suite.

    Validate with `context={"dispositions": names}` to have unknown dispositions refused at their place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    select: Annotated[str, AfterValidator(_select)] = Field(
        description="One SELECT; each row is a persona, and its columns are what the persona may know."
    )
    key: str = Field(min_length=1, description="The column that names a row; unique and not NULL.")
    stratify: str | None = Field(
        default=None,
        min_length=1,
        description="A column of the SELECT: each of its values has its share of the conversations, and "
        "those with few rows at least one where `count` allows.",
    )
    dispositions: dict[DispositionName, Annotated[int, Field(ge=0, strict=True)]] = Field(
        default={},
        description="Disposition to weight. `cooperative` has weight 1 unless it is given; 0 leaves it out.",
    )

    @field_validator("dispositions")
    @classmethod
    def _somebody_plays(cls, weights: dict[str, int]) -> dict[str, int]:
        if not any({"cooperative": 1, **weights}.values()):
            raise ValueError("every disposition has weight 0, so there is nobody to play; give one a weight")
        return weights

    @property
    def weights(self) -> dict[str, int]:
        """Disposition to weight, those with 0 left out. `cooperative` stays in the mix unless set to 0."""
        return {name: weight for name, weight in {"cooperative": 1, **self.dispositions}.items() if weight}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Everybody there is to play.

    Attributes:
        columns: of the SELECT, in order.
        personas: ordered by key, by a rule that does not hang on the server's collation.
        members: case to the keys of the personas that fit it.
    """

    columns: tuple[str, ...]
    personas: tuple[Persona, ...] = field(repr=False)
    members: Mapping[str, frozenset[str]] = field(repr=False)

    def rows_for(self, case: str) -> tuple[Persona, ...]:
        """Who fits the case, in the cast's order; empty where nobody does."""
        members = self.members[case]
        return tuple(persona for persona in self.personas if persona.key in members)

    @property
    def digest(self) -> str:
        """SHA-256 of all rows and of who fits which case, in hexadecimal."""
        rows = [
            [persona.key, [value_text(value) for value in persona.row.values()]] for persona in self.personas
        ]
        members = {case: sorted(keys) for case, keys in self.members.items()}
        text = json.dumps([self.columns, rows, members], ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


async def draw_cast(
    connection: asyncpg.Connection,
    spec: CastSpec,
    conditions: Mapping[str, str | None],
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Cast:
    """Run the SELECT, and each case's condition over it, in one READ ONLY snapshot that is rolled back.

    Args:
        connection: to the baseline, with no transaction open; the caller closes it.
        spec: the SELECT and its key.
        conditions: case to its `who`; None is everybody.
        timeout_s: for each statement, by the server's clock.

    Raises:
        UsageError: the SELECT or a condition cannot be used as it is: what, why, and what to do.
        EnvironmentFault: the server went away.
    """
    for case, condition in conditions.items():
        if condition is not None:
            check_condition(condition, what=f"case {case!r}, who")
    select = embeddable(spec.select)
    async with _read_only(connection, timeout_s):
        with _translated("personas.select", select, head=len(_HEAD), timeout_s=timeout_s):
            columns = await _columns(connection, spec.key, select)
            rows = await connection.fetch(f'{_HEAD}{select}\n) AS "cast" LIMIT {MAX_ROWS + 1}')
        personas = _personas(rows, spec.key)
        members: dict[str, frozenset[str]] = {}
        everybody = frozenset(persona.key for persona in personas)
        known: dict[str, frozenset[str]] = {}
        for case, condition in conditions.items():
            if condition is None:
                members[case] = everybody
                continue
            if condition not in known:
                known[condition] = await _fitting(connection, spec, select, condition, case, timeout_s)
            members[case] = known[condition]
    return Cast(columns=columns, personas=personas, members=MappingProxyType(members))


async def _columns(connection: asyncpg.Connection, key: str, select: str) -> tuple[str, ...]:
    """The SELECT's columns, of which the key must be one and no two may share a name."""
    statement = await connection.prepare(f'{_HEAD}{select}\n) AS "cast"')
    columns = tuple(attribute.name for attribute in statement.get_attributes())
    if doubles := sorted(name for name, count in Counter(columns).items() if count > 1):
        raise UsageError(f"personas.select gives {doubles[0]!r} twice; name each column once, with AS")
    if key not in columns:
        raise UsageError(
            f"personas.key {key!r} is no column of personas.select{suggest(key, columns)}; "
            "select it, or name one of these as the key"
        )
    return columns


def _personas(rows: list[asyncpg.Record], key: str) -> tuple[Persona, ...]:
    if not rows:
        raise UsageError(
            "personas.select gives no rows, so there is nobody to play; widen it, or fill the seed"
        )
    if len(rows) > MAX_ROWS:
        raise UsageError(f"personas.select gives more than {MAX_ROWS} rows; narrow it, or add a LIMIT")
    if any(row[key] is None for row in rows):
        raise UsageError(f"personas.key {key!r} is NULL in some rows; choose a column that is never NULL")
    try:
        ordered = sorted(rows, key=lambda row: row[key])
    except TypeError:  # a type without an order, such as json or point
        ordered = sorted(rows, key=lambda row: str(row[key]))
    personas = tuple(
        Persona(key=value_text(row[key]) or "", row=MappingProxyType(dict(row))) for row in ordered
    )
    doubled = sum(count > 1 for count in Counter(persona.key for persona in personas).values())
    if doubled:
        raise UsageError(
            f"personas.key {key!r} is not unique: {doubled} of its values stand in more than one row; choose "
            "a unique column, or make the SELECT give one row for each"
        )
    return personas


async def _fitting(
    connection: asyncpg.Connection, spec: CastSpec, select: str, condition: str, case: str, timeout_s: float
) -> frozenset[str]:
    quoted = '"' + spec.key.replace('"', '""') + '"'
    head = f'SELECT {quoted} FROM (\n{select}\n) AS "cast" WHERE ('
    with _translated(f"case {case!r}, who", condition, head=len(head), timeout_s=timeout_s):
        rows = await connection.fetch(f"{head}{condition}\n)")
    return frozenset(value_text(row[0]) or "" for row in rows)


@asynccontextmanager
async def _read_only(connection: asyncpg.Connection, timeout_s: float) -> AsyncIterator[None]:
    """One snapshot that cannot write, each statement bounded; rolled back, so that no setting survives it."""
    with _connected():
        transaction = connection.transaction(isolation="repeatable_read", readonly=True)
        await transaction.start()
        try:
            await connection.execute(
                "SELECT set_config('statement_timeout', $1, true)", str(round(timeout_s * 1000))
            )
            yield
        finally:
            if not connection.is_closed():
                await transaction.rollback()


@contextmanager
def _connected() -> Iterator[None]:
    """Say as a fault of ours that the server went away or has nothing left to give."""
    try:
        yield
    except asyncpg.QueryCanceledError:
        raise
    except (
        asyncpg.PostgresConnectionError,
        asyncpg.OperatorInterventionError,
        asyncpg.InsufficientResourcesError,
        asyncpg.InterfaceError,
        OSError,
    ) as exc:
        raise EnvironmentFault(
            f"the cast could not be drawn: the session on the baseline failed ({type(exc).__name__}); "
            "launch again",
            retryable=True,
        ) from exc


@contextmanager
def _translated(what: str, sql: str, *, head: int, timeout_s: float) -> Iterator[None]:
    """Say what the database has against a suite's SQL, placed in the suite's own text.

    Args:
        what: what the SQL is called in messages.
        sql: the suite's text.
        head: how many characters of ours stand before it in the query.
        timeout_s: the bound that was set.
    """
    try:
        with _connected():
            yield
    except asyncpg.QueryCanceledError as exc:
        raise UsageError(f"{what} took longer than {timeout_s:g} s on the baseline; make it cheaper") from exc
    except asyncpg.PostgresError as exc:
        place = int(exc.position) - 1 - head if exc.position else -1
        where = f", {position(sql, place)}" if 0 <= place <= len(sql) else ""
        raise UsageError(
            f"{what} fails on the database: {exc.message}{where}; correct it for this seed"
        ) from exc

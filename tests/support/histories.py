"""Random histories of a database: what several sessions do to the wide zoo, statement by statement.

A history is plain data, so that one that found a fault can be written down as a test. Many statements fail,
by a constraint, a right, a lock or an aborted transaction; that is as it is with agents too.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import asyncpg
from hypothesis import strategies as st

from support.databases import connected, scratch_database
from support.statements import (
    ANYWHERE,
    BY_ADMIN,
    COPY_FREEZE,
    DDL,
    FORMS,
    FROZEN_COPIES,
    TENDING,
    TRANSACTIONS,
    Drawn,
)
from support.zoo_wide import APP, SHAPES, wide_zoo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from redteam_forker.servers import Server
    from support.zoo_wide import Shape

__all__ = [
    "ADMIN",
    "APP_1",
    "APP_2",
    "ROWS_ONLY",
    "UPKEEP",
    "WITH_SCHEMA",
    "Session",
    "Step",
    "play",
    "wide_baseline",
]

# Who acts. Two of the fork's role, whose transactions interleave; a superuser; one for what cannot run in a
# transaction.
Session = int
APP_1, APP_2, ADMIN, UPKEEP = range(4)


class Step(NamedTuple):
    """One statement of one session."""

    session: Session
    sql: str


@contextlib.asynccontextmanager
async def wide_baseline(server: Server) -> AsyncIterator[str]:
    """The wide zoo as a template is: frozen, and never changed again. One on a server at a time."""
    async with connected(server) as admin:
        there = await admin.fetch("SELECT name FROM pg_available_extensions")
        xml = await _has_xml(admin)
        await admin.execute(f"CREATE ROLE {APP}")
        try:
            sql = wide_zoo(
                server.facts.version_num, extensions=frozenset(row["name"] for row in there), xml=xml
            )
            async with scratch_database(server, sql) as name:
                async with connected(server, name) as session:
                    # Without ANALYZE, which asks the server of a foreign partition.
                    await session.execute("VACUUM (FREEZE)")
                yield name
        finally:
            await admin.execute(f"DROP ROLE {APP}")


async def _has_xml(session: asyncpg.Connection) -> bool:
    try:
        await session.execute("SELECT xml '<a/>'")
    except asyncpg.FeatureNotSupportedError:
        return False
    return True


async def play(server: Server, database: str, history: Sequence[Step]) -> int:
    """Run a history; how many of its statements succeeded. What is left open is rolled back."""
    async with contextlib.AsyncExitStack() as stack:
        sessions: dict[Session, asyncpg.Connection] = {}
        done = 0
        for number, sql in history:
            if number not in sessions:
                session = await stack.enter_async_context(connected(server, database))
                # Nobody else runs while one waits, so whoever has to wait has to give up.
                await session.execute("SET lock_timeout = '15ms'")
                if number in (APP_1, APP_2):
                    await session.execute(f"SET SESSION AUTHORIZATION {APP}")
                sessions[number] = session
            with contextlib.suppress(asyncpg.PostgresError):
                if sql.startswith(COPY_FREEZE):
                    await _copy_freeze(sessions[number], sql.removeprefix(COPY_FREEZE))
                else:
                    await sessions[number].execute(sql)
                done += 1
        for session in sessions.values():
            await session.execute("ROLLBACK")
        return done


async def _copy_freeze(session: asyncpg.Connection, table: str) -> None:
    """Empty a table and fill it again with rows that are frozen from the start."""
    chunks: list[bytes] = []

    async def keep(chunk: bytes) -> None:
        chunks.append(chunk)

    async def again() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async with session.transaction():
        await session.copy_from_query(f"TABLE {table}", output=keep)
        await session.execute(f"TRUNCATE {table}")
        await session.copy_to_table(table, source=again(), freeze=True)


_numbers = st.integers(0, 70)
_moduli = st.sampled_from([1, 2, 3, 5, 20, 300])


@st.composite
def _dml(draw: st.DrawFn, shapes: Sequence[Shape]) -> str:
    shape = draw(st.sampled_from(shapes))
    n = draw(_numbers)
    set_ = draw(st.sampled_from(shape.sets)).format(n=n) if shape.sets else ""
    drawn = Drawn(n, draw(_moduli), draw(st.integers(0, 4)), set_)
    return draw(st.sampled_from(FORMS))(shape, drawn)


@st.composite
def _templated(draw: st.DrawFn, templates: Sequence[str], shapes: Sequence[Shape]) -> str:
    template = draw(st.sampled_from(templates))
    shape = draw(st.sampled_from(shapes))
    n = draw(_numbers)
    column = draw(st.sampled_from(shape.columns)) if shape.columns else "v"
    bare = shape.bare.rpartition(".")[2]
    return template.format(t=shape.bare, b=bare, c=column, n=n, m=n % 3)


@st.composite
def _steps(draw: st.DrawFn, shapes: Sequence[Shape], kinds: Sequence[str]) -> list[Step]:
    """One statement, or a few that belong together."""
    session = draw(st.sampled_from([APP_1, APP_1, APP_2, ADMIN]))
    kind = draw(st.sampled_from(kinds))

    def many(most: int = 3) -> list[str]:
        return [draw(_dml(shapes)) for _ in range(draw(st.integers(1, most)))]

    match kind:
        case "dml":
            texts = many(1)
        case "undone":
            texts = ["BEGIN", *many(), "ROLLBACK"]
        case "partly":
            texts = ["BEGIN", *many(1), "SAVEPOINT s", *many(2), "ROLLBACK TO s", *many(1), "COMMIT"]
        case "released":
            texts = ["BEGIN", "SAVEPOINT s", *many(1), "RELEASE s", *many(2), "COMMIT"]
        case "transaction":
            texts = [draw(st.sampled_from(TRANSACTIONS))]
        case "elsewhere":
            texts = [draw(_templated(ANYWHERE, shapes))]
        case "admin":
            session, texts = ADMIN, [draw(_templated(BY_ADMIN, shapes))]
        case "upkeep":
            session, texts = UPKEEP, [draw(_templated(TENDING, shapes))]
        case "frozen copy":
            session, texts = UPKEEP, [draw(st.sampled_from(FROZEN_COPIES))]
        case _:
            session = draw(st.sampled_from([ADMIN, ADMIN, ADMIN, APP_1]))
            texts = [draw(_templated(DDL, shapes))]
    return [Step(session, text) for text in texts]


_WRITES = ["dml"] * 12 + ["undone", "undone", "partly", "partly", "released"] + ["transaction"] * 3
_WRITES += ["elsewhere", "elsewhere", "admin"]
# Upkeep voids the quickest way of finding changes, so only some histories have it.
_TENDED = [*_WRITES, "upkeep", "upkeep", "upkeep", "frozen copy"]


@st.composite
def _histories(draw: st.DrawFn, *, ddl: bool) -> list[Step]:
    # A few tables for each history, so that statements meet.
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4))
    kinds = draw(st.sampled_from([_WRITES, _WRITES, _TENDED])) + ["ddl"] * (10 if ddl else 0)
    many = draw(st.lists(_steps(shapes, kinds), min_size=3, max_size=16))
    ends = draw(st.lists(st.sampled_from([APP_1, APP_2, ADMIN]), max_size=3, unique=True))
    return [*(step for steps in many for step in steps), *(Step(session, "COMMIT") for session in ends)]


ROWS_ONLY = _histories(ddl=False)
WITH_SCHEMA = _histories(ddl=True)

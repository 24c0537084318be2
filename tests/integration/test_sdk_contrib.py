"""SQLAlchemy and psycopg: one object for production and every fork, and never another's connection.

Long because each driver has ways of its own to go wrong.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import traceback
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from sqlalchemy.pool import NullPool
from support.conversations import MINTER, no_session_left
from support.drivers import DRIVERS, Drivers
from support.sdk import armed, context_for, fork

from redteam_sdk import carry, db
from redteam_sdk.context import bind, bound, handover
from redteam_sdk.contrib import psycopg as contrib_psycopg
from redteam_sdk.contrib.sqlalchemy import create_async_engine, create_engine
from redteam_sdk.errors import EnvironmentFault, ExpiredContext, NoContext, UsageError
from redteam_sdk.faults import cause_of
from redteam_sdk.record import recording

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from redteam_forker.servers import Server
    from redteam_sdk.context import Context

WHERE = sqlalchemy.text("SELECT current_database()")
# Nobody listens there: what connects to it, although it must not, fails.
NOWHERE = "postgresql://u:p@203.0.113.1:9/production"


class Base(DeclarativeBase):
    pass


class Slot(Base):
    __tablename__ = "slot"
    id: Mapped[int] = mapped_column(primary_key=True)
    owner: Mapped[str]


SLOTS = "CREATE TABLE slot (id serial PRIMARY KEY, owner text)"


def url(dsn: str, driver: str) -> sqlalchemy.URL:
    return sqlalchemy.make_url(dsn).set(drivername=f"postgresql+{driver}")


@asynccontextmanager
async def drivers_for(dsn: str) -> AsyncIterator[Drivers]:
    drivers = Drivers(dsn)
    async with drivers.opened():
        yield drivers


async def test_many_conversations_at_once_each_get_their_own_fork_from_every_driver(server: Server) -> None:
    async with (
        fork(server, "c1", sessions=20) as one,
        fork(server, "c2", sessions=20) as two,
        fork(server, "c3", sessions=20) as three,
        drivers_for(NOWHERE) as drivers,
    ):
        seen: dict[str, set[str]] = {each.database: set() for each in (one, two, three)}

        async def talk(context: Context) -> None:
            with bind(MINTER.mint(context)):
                for name in DRIVERS * 2:
                    if name != "asyncpg":
                        seen[context.database].add(await drivers.ask(name))

        with armed(MINTER, server.facts.host):
            async with anyio.create_task_group() as group:
                for _ in range(2):
                    for each in (one, two, three):
                        group.start_soon(talk, each)
            for each in (one, two, three):
                await db.close_context(each)
                await no_session_left(server, each)
        assert seen == {each.database: {each.database} for each in (one, two, three)}


async def test_end_of_a_conversation_refuses_late_work_of_every_driver(server: Server) -> None:
    async with fork(server, sessions=20) as context, drivers_for(NOWHERE) as drivers:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            for name in DRIVERS:
                assert await drivers.ask(name) == context.database
            await db.close_context(context)
            await no_session_left(server, context)
            for name in DRIVERS:
                if name not in ("psycopg", "psycopg, async"):
                    with pytest.raises(NoContext, match="is over"):
                        await drivers.ask(name)


async def test_connection_that_is_given_back_after_the_end_is_closed(server: Server) -> None:
    engine, pool = create_engine(url(NOWHERE, "psycopg")), contrib_psycopg.ConnectionPool(NOWHERE)
    async_engine = create_async_engine(url(NOWHERE, "asyncpg"))
    async with fork(server, sessions=20) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            held = engine.connect()
            lent = await anyio.to_thread.run_sync(pool.getconn)
            async with async_engine.connect() as session:
                assert await session.scalar(WHERE) == held.scalar(WHERE) == context.database
                await db.close_context(context)
            held.close()
            pool.putconn(lent)
            await no_session_left(server, context)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_sessions_and_models_of_an_engine_write_where_the_context_says(
    server: Server, driver: str
) -> None:
    async with fork(server, sql=SLOTS) as place, fork(server, sql=SLOTS) as context:
        engine = create_async_engine(url(place.dsn(), driver))
        make = async_sessionmaker(engine)

        async def book(owner: str) -> list[str]:
            async with make() as session, session.begin():
                session.add(Slot(owner=owner))
            async with make() as session:
                return list(await session.scalars(sqlalchemy.select(Slot.owner).order_by(Slot.id)))

        assert await book("patient") == ["patient"]
        with armed(MINTER, server.facts.host):
            with bind(MINTER.mint(context)):
                assert await book("persona") == ["persona"]
                assert await book("persona") == ["persona"] * 2
            with pytest.raises(NoContext):
                await book("nobody")
            await db.close_context(context)
        assert await book("patient") == ["patient"] * 2
        await engine.dispose()


async def test_sync_engine_keeps_forks_apart_in_a_thread_pool_of_one(server: Server) -> None:
    async with fork(server, "c1", SLOTS) as one, fork(server, "c2", SLOTS) as two:
        engine = create_engine(url(NOWHERE, "psycopg"))
        make = sessionmaker(engine)

        def book(owner: str) -> list[str]:
            with make() as session, session.begin():
                session.add(Slot(owner=owner))
                session.flush()
                return list(session.scalars(sqlalchemy.select(Slot.owner).order_by(Slot.id)))

        limit = anyio.CapacityLimiter(1)
        with armed(MINTER, server.facts.host):
            for _ in range(2):
                for context in (one, two):
                    with bind(MINTER.mint(context)):
                        seen = await anyio.to_thread.run_sync(book, context.database, limiter=limit)
                        assert set(seen) == {context.database}
            engine.dispose()  # as an application may at any time
            with bind(MINTER.mint(one)):
                assert book(one.database) == [one.database] * 3
            for context in (one, two):
                await db.close_context(context)
                await no_session_left(server, context)


async def test_session_bound_to_an_open_transaction_stays_with_its_fork(server: Server) -> None:
    async with fork(server, "c1") as one, fork(server, "c2") as two:
        engine = create_engine(url(NOWHERE, "psycopg"))
        with armed(MINTER, server.facts.host):
            with bind(MINTER.mint(one)):
                session = Session(engine)
                assert session.scalar(WHERE) == one.database
            with bind(MINTER.mint(two)):
                # It was begun there, and a session does not move; a new one is here.
                assert session.scalar(WHERE) == one.database
                with Session(engine) as another:
                    assert another.scalar(WHERE) == two.database
            session.close()
            for context in (one, two):
                await db.close_context(context)


async def test_async_engine_serves_several_event_loops(server: Server) -> None:
    engine = create_async_engine(url(NOWHERE, "asyncpg"))

    async def look() -> str:
        async with engine.connect() as session:
            return str(await session.scalar(WHERE))

    async with fork(server) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            for _ in range(7):  # more loops than the role may have sessions
                seen = await anyio.to_thread.run_sync(asyncio.run, look())
                assert seen == await look() == context.database
            await db.close_context(context)
            await no_session_left(server, context)


async def test_environment_and_arguments_of_production_do_not_bend_the_way_to_a_fork(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {
        "host": "production.invalid",
        "user": "root",
        "password": "x",
        "ssl": True,
        "server_settings": {},
    }
    engine = create_async_engine(url(NOWHERE, "asyncpg"), connect_args=elsewhere)
    libpq = {
        "hostaddr": "203.0.113.1",
        "service": "production",
        "sslmode": "verify-full",
        "options": "-cwork_mem=1MB",
    }
    sync = create_engine(url(NOWHERE, "psycopg"), connect_args=libpq)
    pool = contrib_psycopg.ConnectionPool(
        f"{NOWHERE}?sslmode=verify-full", kwargs={"hostaddr": "203.0.113.1"}
    )
    async with fork(server) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            with monkeypatch.context() as environment:
                for name, value in {
                    "PGHOST": "production.invalid",
                    "PGHOSTADDR": "203.0.113.1",
                    "PGPORT": "9",
                    "PGUSER": "root",
                    "PGPASSWORD": "x",
                    "PGDATABASE": "production",
                    "PGOPTIONS": "-c role=root",
                    "PGSSLMODE": "verify-full",
                    "PGTARGETSESSIONATTRS": "standby",
                    "PGCHANNELBINDING": "require",
                }.items():
                    environment.setenv(name, value)
                async with engine.connect() as session:
                    assert await session.scalar(WHERE) == context.database
                with sync.connect() as connection:
                    assert connection.scalar(WHERE) == context.database
                    assert connection.scalar(sqlalchemy.text("SHOW work_mem")) == "1MB"

                def ask() -> Any:
                    with pool.connection() as conn:
                        return conn.execute("SELECT current_database()").fetchone()

                assert await anyio.to_thread.run_sync(ask) == (context.database,)
                with contrib_psycopg.connect(NOWHERE, hostaddr="203.0.113.1") as conn:
                    assert conn.info.dbname == context.database
            await db.close_context(context)


async def test_fork_that_cannot_be_reached_is_our_fault_and_tells_no_secret(server: Server) -> None:
    async with fork(server) as context, drivers_for(NOWHERE) as drivers:
        wrong = replace(context, password="not-the-secret-that-it-is")
        with armed(MINTER, server.facts.host), bound(wrong):
            for name in DRIVERS:
                if "pool" in name:
                    continue  # psycopg_pool goes on trying for 30 seconds
                with pytest.raises(EnvironmentFault, match="gave no connection") as caught:
                    await drivers.ask(name)
                assert caught.value.__context__ is None
                assert wrong.password not in "".join(traceback.format_exception(caught.value))
            await db.close_context(wrong)


async def test_pool_that_gives_nothing_in_time_is_a_fault_that_is_recorded(server: Server) -> None:
    events: list[dict[str, Any]] = []

    class Recorder:
        def emit(self, event: dict[str, Any]) -> None:
            events.append(event)

    pool = contrib_psycopg.ConnectionPool(NOWHERE)
    async with fork(server) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)), recording(Recorder()):
            held = [await anyio.to_thread.run_sync(pool.getconn) for _ in range(2)]
            with pytest.raises(EnvironmentFault, match="PoolTimeout"):
                await anyio.to_thread.run_sync(pool.getconn, 0.1)
            for connection in held:
                pool.putconn(connection)
            await db.close_context(context)
    assert [(event["kind"], event["cause"]) for event in events] == [("fault", "environment")]


def test_lost_server_is_our_fault_in_every_drivers_words() -> None:
    lost = psycopg.errors.AdminShutdown()
    assert cause_of(lost) == "environment"
    wrapped = sqlalchemy.exc.OperationalError("SELECT", {}, lost)
    wrapped.__cause__ = lost
    assert cause_of(wrapped) == "environment"
    assert cause_of(psycopg.errors.UniqueViolation()) is None
    assert cause_of(psycopg.errors.QueryCanceled()) is None


async def test_pools_open_nothing_to_production_in_a_process_that_belongs_to_redteam() -> None:
    with armed(MINTER, "/nowhere"):
        with contrib_psycopg.ConnectionPool(NOWHERE, open=True) as pool:
            assert pool._production.closed
            with pytest.raises(NoContext):
                pool.getconn()
        async with contrib_psycopg.AsyncConnectionPool(NOWHERE) as other:
            with pytest.raises(NoContext):
                await other.getconn()


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("postgresql+pg8000://u@h/d", {}),
        ("sqlite://", {}),
        (url(NOWHERE, "psycopg"), {"creator": print}),
        (url(NOWHERE, "psycopg"), {"pool": NullPool(print)}),  # type: ignore[arg-type]
    ],
    ids=["pg8000", "sqlite", "creator", "pool"],
)
def test_engine_that_could_not_be_led_is_refused(address: Any, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        create_engine(address, **options)


async def test_engine_without_a_pool_of_its_own_is_led_too(server: Server) -> None:
    async with fork(server) as place, fork(server) as context:
        engine = create_engine(url(place.dsn(), "psycopg"), poolclass=NullPool)
        with engine.connect() as session:
            assert session.scalar(WHERE) == place.database
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            with engine.connect() as session:
                assert session.scalar(WHERE) == context.database
            await db.close_context(context)


async def test_listeners_of_an_engine_hear_of_forks_connections_and_give_them_no_password(
    server: Server,
) -> None:
    engine = create_engine(url(NOWHERE, "psycopg"))
    made: list[str] = []

    @sqlalchemy.event.listens_for(engine, "connect")
    def note(connection: Any, record: Any) -> None:
        made.append(connection.info.dbname)

    @sqlalchemy.event.listens_for(engine, "do_connect")
    def log_in(dialect: Any, record: Any, positional: Any, named: dict[str, Any]) -> None:
        named["password"] = "production's token"

    async with fork(server) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            with engine.connect() as session:
                assert session.scalar(WHERE) == context.database
            await db.close_context(context)
    assert made == [context.database]


async def test_forked_child_makes_connections_of_its_own(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        """
import os, sqlalchemy
from redteam_sdk import context
from redteam_sdk.contrib.sqlalchemy import create_engine
engine = create_engine("postgresql+psycopg://u@203.0.113.1:9/production")
def look():
    with engine.connect() as session:
        return session.execute(sqlalchemy.text("SELECT current_database(), pg_backend_pid()")).one()
context.adopt()
database, pid = look()
if (child := os.fork()) == 0:
    seen = look()
    os._exit(0 if seen[0] == database and seen[1] != pid else 1)
assert os.waitpid(child, 0)[1] == 0
assert look() == (database, pid)
print(database)
"""
    )
    async with fork(server) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            given = {"PATH": os.environ["PATH"], **handover()}
        done = await anyio.to_thread.run_sync(
            lambda: subprocess.run(
                [sys.executable, script], env=given, capture_output=True, text=True, timeout=50, check=False
            )
        )
        assert (done.stdout.strip(), done.stderr) == (context.database, "")


async def test_bare_thread_has_no_engine_and_a_carried_one_has(server: Server) -> None:
    engine = create_engine(url(NOWHERE, "psycopg"))
    seen: list[str] = []

    def look() -> None:
        try:
            with engine.connect() as session:
                seen.append(str(session.scalar(WHERE)))
        except NoContext:
            seen.append("NoContext")

    async with fork(server) as context:
        with armed(MINTER, server.facts.host), bind(MINTER.mint(context)):
            for use in (look, carry(look)):
                worker = threading.Thread(target=use)
                worker.start()
                await anyio.to_thread.run_sync(worker.join)
            await db.close_context(context)
    assert seen == ["NoContext", context.database]


def test_context_whose_time_is_over_gets_no_connection_from_any_driver() -> None:
    engine = create_engine(url(NOWHERE, "psycopg"))
    start = context_for().not_before
    over = context_for(not_before=start - timedelta(hours=2), expires_at=start - timedelta(hours=1))
    with armed(MINTER, "/nowhere"), bound(over):
        for use in (engine.connect, lambda: contrib_psycopg.connect(NOWHERE)):
            with pytest.raises(ExpiredContext):
                use()

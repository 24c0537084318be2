"""A read-only look at one database at one instant, in which every value prints the same on both sides."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from redteam_forker._pg import close

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers.server import Server

__all__ = ["PageReader", "Snapshot", "snapshot"]

# What decides how a value prints (P62), what hides rows (P63), and what would cost twenty collections at once
# more than it gives one: parallel workers and compilation.
_SETTINGS = {
    "search_path": "pg_catalog",
    "row_security": "off",
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmlbinary": "base64",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "synchronize_seqscans": "off",
    "statement_timeout": "0",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "work_mem": "16MB",
    "check_function_bodies": "on",
}
# The sort of a million rows may need more than the agent is allowed.
_SUPERUSER_SETTINGS = {"temp_file_limit": "-1"}
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ {}"
_EVENT_TRIGGERS_CAN_BE_OFF = 170000
_EVENT_TRIGGER = "SELECT EXISTS (SELECT FROM pg_catalog.pg_event_trigger WHERE evtenabled <> 'D')"


@dataclass(frozen=True, slots=True)
class PageReader:
    """Names of two functions of pageinspect that exist in one transaction only."""

    page: str = "pg_temp.page_of"
    items: str = "pg_temp.items_of"


# Not the extension: it would be seen, and our transaction is rolled back.
_READER = PageReader()
_CREATE_READER = f"""
CREATE FUNCTION {_READER.page}(text, text, int8) RETURNS bytea
  LANGUAGE c STRICT AS '$libdir/pageinspect', 'get_raw_page_fork_1_9';
CREATE FUNCTION {_READER.items}(
  page bytea, OUT lp int2, OUT lp_off int2, OUT lp_flags int2, OUT lp_len int2, OUT t_xmin xid,
  OUT t_xmax xid, OUT t_field3 int4, OUT t_ctid tid, OUT t_infomask2 int4, OUT t_infomask int4,
  OUT t_hoff int2, OUT t_bits text, OUT t_oid oid, OUT t_data bytea
) RETURNS SETOF record LANGUAGE c STRICT AS '$libdir/pageinspect', 'heap_page_items';
SET TRANSACTION READ ONLY
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One session in one transaction.

    Attributes:
        connection: the session.
        reader: how pages are read; None: they cannot be, or were not asked for.
        refused: why they cannot be, in words that go after "because".
    """

    connection: asyncpg.Connection
    reader: PageReader | None = None
    refused: str | None = None


@contextlib.asynccontextmanager
async def snapshot(server: Server, database: str, *, pages: bool = False) -> AsyncIterator[Snapshot]:
    """One session in one REPEATABLE READ, READ ONLY transaction with pinned settings, rolled back at the end.

    Args:
        server: where the database is.
        database: its name.
        pages: whether to try for a `PageReader`. Its functions are made from pageinspect's library before the
            transaction turns read-only; nobody else ever sees them, and they are gone with it.

    Raises:
        asyncpg.PostgresError, OSError: as they come; `collect_changes` translates them.
    """
    connection = await server.connect(database)
    try:
        refused = await _why_no_pages(server, connection) if pages else None
        if pages and refused is None:
            refused = await _begin_with_pages(connection, server)
        if not pages or refused is not None:
            await connection.execute(f"{_BEGIN.format('ONLY')}; {_settings(server)}")
        yield Snapshot(connection, _READER if pages and refused is None else None, refused)
        await connection.execute("ROLLBACK")
    finally:
        await close(connection)


async def _why_no_pages(server: Server, connection: asyncpg.Connection) -> str | None:
    facts = server.facts
    if not facts.superuser:
        return "our role on this server is no superuser"
    # Later servers were told to run none in our sessions.
    if facts.version_num < _EVENT_TRIGGERS_CAN_BE_OFF and await connection.fetchval(_EVENT_TRIGGER):
        return "an event trigger of the database would run"
    return None


async def _begin_with_pages(connection: asyncpg.Connection, server: Server) -> str | None:
    """Begin, or leave no transaction and say why not."""
    try:
        await connection.execute(f"{_BEGIN.format('WRITE')}; {_settings(server)}; {_CREATE_READER}")
    except asyncpg.UndefinedFileError:
        await connection.execute("ROLLBACK")
        return "this server has no pageinspect library"
    except (asyncpg.InsufficientPrivilegeError, asyncpg.UndefinedFunctionError) as error:
        await connection.execute("ROLLBACK")
        return f"pageinspect cannot be used ({error.args[0]})"
    return None


def _settings(server: Server) -> str:
    settings = {**_SETTINGS, **(_SUPERUSER_SETTINGS if server.facts.superuser else {})}
    return "SELECT " + ", ".join(
        f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings.items()
    )

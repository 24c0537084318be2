"""A dump made by the newest pg_dump loads on each older server that can be found here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from support.seeds import loaded, seed_of
from support.versions import VERSIONS, NotFoundError, foreign_server, programs_of

from redteam_forker.seeds import preflight
from redteam_forker.servers import open_server

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_NEWER = """
    SET statement_timeout = 0;
    SET transaction_timeout = 0;
    SET work_mem = '1MB';
    CREATE ROLE seed_versions_a; CREATE ROLE seed_versions_b;
    GRANT seed_versions_a TO seed_versions_b WITH INHERIT FALSE;
    CREATE TABLE t (a int);
"""


@pytest.mark.parametrize("version", [version for version in VERSIONS if version < 18])
async def test_a_setting_of_a_newer_release_does_not_stop_a_seed(version: int) -> None:
    try:
        programs = await anyio.to_thread.run_sync(programs_of, version)
    except NotFoundError as error:
        pytest.skip(str(error))
    async with foreign_server(programs) as dsn, open_server(dsn) as server:
        seed = seed_of(_NEWER)
        unknown = ("transaction_timeout",) if version < 17 else ()
        assert (await preflight(server, seed)).unknown_settings == unknown
        facts = await loaded(server, seed)
        assert facts.tables == 1
        assert facts.notes == tuple(
            f"SET {name} is left out: PostgreSQL {version} has no such setting" for name in unknown
        )


async def test_the_newest_server_knows_every_setting(server: Server) -> None:
    assert await preflight(server, seed_of(_NEWER)) == await preflight(server, seed_of("SELECT 1"))

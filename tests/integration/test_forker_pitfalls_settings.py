"""The embedded server runs with the settings that keep forks cheap, apart and droppable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.databases import connected
from support.forks import connected_as, made_fork, made_template

if TYPE_CHECKING:
    from redteam_forker.servers import Server

_SETTINGS = {
    "fsync": "off",  # P96: a fork would cost tens of times as much; nothing here has to survive a crash
    "synchronous_commit": "off",  # P96
    "listen_addresses": "",  # P83: no port, so no race for one, and no network
    "max_prepared_transactions": "0",  # P33
    "wal_level": "minimal",  # P73: no slot, so none can hold the log back
    "max_wal_senders": "0",
    "shared_preload_libraries": "",  # P05
    "autovacuum": "off",
    "max_parallel_workers_per_gather": "0",  # P91: no shared segment for a query
    "temp_file_limit": "1GB",  # P52
    "max_notify_queue_pages": "32768",  # P53
    "password_encryption": "scram-sha-256",
    "log_statement": "none",
    "log_min_error_statement": "panic",
    "log_parameter_max_length_on_error": "0",
}


@pytest.mark.parametrize("name", _SETTINGS)
async def test_the_server_runs_with(server: Server, name: str) -> None:
    async with connected(server) as session:
        assert await session.fetchval("SELECT current_setting($1)", name) == _SETTINGS[name]


async def test_the_servers_secret_lies_in_no_file_of_its_home(server: Server) -> None:
    # P80: initdb reads it from a file that its user must be able to open, and that is gone again.
    home = Path(server.facts.host).parent
    secret = server.psql("postgres").env["PGPASSWORD"].encode()
    files = [file for folder in (home, home / "data") for file in folder.iterdir() if file.is_file()]
    assert home / "data/PG_VERSION" in files
    assert [file for file in files if secret in file.read_bytes()] == []


def test_the_socket_has_a_name_that_a_socket_may_have(server: Server) -> None:
    # P82: the kernel keeps 107 bytes of it.
    path = f"{server.facts.host}/.s.PGSQL.{server.facts.port}"
    assert Path(path).is_socket()
    assert len(path.encode()) <= 107


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nobody_waits_for_the_servers_output(server: Server) -> None:
    # P87: a pipe that the server inherits would never end; it writes to a file of its own.
    postmaster = (Path(server.facts.host).parent / "data/postmaster.pid").read_text().split("\n")[0]
    read, write, errors = (Path(f"/proc/{postmaster}/fd/{number}").resolve() for number in (0, 1, 2))
    assert str(read) == "/dev/null"
    assert write.is_file()
    assert errors == write


async def test_an_idle_transaction_of_a_fork_is_ended_unless_its_role_objects(server: Server) -> None:
    # P54: it would hold back the cleaning of shared catalogs. A role may lift the limit; close and drop stay.
    sql = "CREATE TABLE t (id int);  -- idle"
    async with (
        made_template(server, sql) as template,
        made_fork(server, template) as fork,
        connected_as(fork) as agent,
    ):
        assert await agent.fetchval("SHOW idle_in_transaction_session_timeout") == "5min"

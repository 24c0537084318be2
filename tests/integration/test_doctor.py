"""The doctor, on real servers: what it says was measured, and nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest
from support.cli import REDTEAM, dsn_of, environment, redteam
from support.databases import scratch_database

from redteam_forker.budget import plan_budget
from redteam_forker.doctor import diagnose, find_programs
from redteam_forker.fork import list_forks
from redteam_forker.ledger import DATABASE, entries_of
from redteam_forker.probe import measure_fork
from redteam_forker.servers import homes, open_server, state
from redteam_forker.sweep import sweep
from redteam_harness.cli import doctoring
from redteam_harness.cli.settings import Settings
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_forker.servers import Server

MIB = 1 << 20
SETTINGS = Settings(
    api_key=None,
    base_url=None,
    state=Path("not-used"),
    postgres_user=None,
    signing_key=Path("not-used"),
    environment={},
)


async def run_doctor(dsn: str, settings: Settings, *, as_json: bool, size_mb: int = 9) -> int:
    """The command starts an event loop of its own, so it runs in a thread of its own."""
    command = partial(doctoring.run_doctor, dsn, settings, as_json=as_json, size_mb=size_mb)
    return await anyio.to_thread.run_sync(command)


async def _own_databases(server: Server) -> set[str]:
    async with server.maintenance() as connection:
        rows = await connection.fetch("SELECT datname::text FROM pg_database WHERE datname ~ '^rt_'")
    return {row["datname"] for row in rows} - {DATABASE}  # which stays, for who comes next


async def test_the_fork_that_is_measured_has_the_size_asked_for_and_leaves_nothing() -> None:
    async with open_server() as server:
        found = await diagnose(server, template_bytes=24 * MIB)
        assert await _own_databases(server) == set()
        assert found.cost is not None
        assert abs(found.cost.template_bytes - 24 * MIB) < 2 * MIB
        assert found.cost.disk_bytes is not None
        assert found.cost.disk_bytes < 32 * MIB
        assert 0 < found.cost.fork_s < found.cost.first_answer_s
        assert found.rights.superuser
        # As many as it says, a launch may have; one more is refused.
        fits = partial(plan_budget, server.facts, warm=0, template_bytes=24 * MIB, free_bytes=None)
        assert fits(parallel=found.room.conversations).parallel == found.room.conversations
        with pytest.raises(UsageError):
            fits(parallel=found.room.conversations + 1)
        assert found.room.forks is not None
        assert 0 < found.room.forks < (found.storage.free_bytes or 0) // (24 * MIB)
        assert json.loads(json.dumps(found.to_json()))["facts"]["version"] == server.facts.version


async def test_a_doctor_that_is_killed_leaves_nothing_behind_the_next_sweep() -> None:
    async with open_server() as server:
        process = await asyncio.create_subprocess_exec(
            *(str(REDTEAM), "doctor", "--server", dsn_of(server), "--size", "9"),
            env=environment(),
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            with anyio.fail_after(50):
                while not any(entry.state == "leased" for entry in await entries_of(server)):  # noqa: ASYNC110 - a server sets no event
                    await anyio.sleep(0.001)
        finally:
            process.kill()
            await process.wait()
        assert await _own_databases(server) != set()
        swept = await sweep(server)
        assert swept.failed == ()
        assert await _own_databases(server) == set()
        assert await entries_of(server) == ()
        async with server.maintenance() as connection:
            roles = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname ~ '^rt_.*_'")
        assert roles == [] or [row["rolname"] for row in roles] == ["rt_admin"]


async def test_a_database_that_forks_could_enter_is_told_instead_of_a_price(server: Server) -> None:
    async with scratch_database(server) as name, open_server(dsn_of(server)) as existing:
        found = await diagnose(existing, template_bytes=9 * MIB)
    assert found.cost is None
    assert f"'{name}' (everybody may connect to it)" in (found.unmeasured or "")


async def test_a_measurement_that_is_cancelled_leaves_nothing(server: Server) -> None:
    async def measure() -> None:
        await measure_fork(server, template_bytes=9 * MIB, rounds=1000)

    before = await _own_databases(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(measure)
        with anyio.fail_after(30):
            while not set(await list_forks(server)) - before:  # noqa: ASYNC110 - a server sets no event
                await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert await _own_databases(server) <= before


async def test_the_doctor_prints_what_it_found_and_says_whether_forks_can_be_made(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = replace(SETTINGS, api_key="sk-not-to-be-seen")
    assert await run_doctor(dsn_of(server), settings, as_json=False) == 0
    printed = capsys.readouterr().out
    assert f"✓ server    PostgreSQL {server.facts.version}, yours" in printed
    assert "✓ model     ANTHROPIC_API_KEY is set" in printed
    assert "✓ role      'rt_admin' is superuser" in printed
    assert "measured now (median of 5)" in printed
    assert printed.endswith("exit 0: forks can be made here\n")
    assert "sk-not" not in printed
    assert server.psql("postgres").env["PGPASSWORD"] not in printed


async def test_as_json_it_is_plain_data_without_secrets(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = replace(SETTINGS, api_key="sk-not-to-be-seen")
    assert await run_doctor(dsn_of(server), settings, as_json=True) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed)
    assert (found["usable"], found["model_key"], found["fault"]) == (True, True, None)
    assert found["cost"]["rounds"] == 5
    # The server's directory is on this machine for certain: its own file says when it was started.
    assert found["storage"]["file_system"]
    assert "sk-not" not in printed
    assert server.psql("postgres").env["PGPASSWORD"] not in printed


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_server_without_the_rights_is_refused_with_what_is_missing(
    server: Server, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    role, password = f"doctor_{secrets.token_hex(4)}", secrets.token_hex(8)
    dsn = f"postgresql://{role}:{password}@/{role}?host={server.facts.host}&port={server.facts.port}"

    async with server.maintenance() as connection:
        await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")
        await connection.execute(f"CREATE DATABASE {role} STRATEGY FILE_COPY")
    try:
        assert await run_doctor(dsn, SETTINGS, as_json=as_json) == 3
    finally:
        async with server.maintenance() as connection:
            await connection.execute(f"DROP DATABASE {role} WITH (FORCE)")
            await connection.execute(f"DROP ROLE {role}")
    printed = capsys.readouterr().out
    assert "lacks CREATEDB" in printed
    assert password not in printed


async def test_a_server_that_is_not_there_is_exit_3_and_a_dsn_that_cannot_be_read_is_usage() -> None:
    assert await run_doctor("postgresql://me@127.0.0.1:1/postgres", SETTINGS, as_json=True) == 3
    with pytest.raises(UsageError):
        await run_doctor("mysql://me@127.0.0.1/x", SETTINGS, as_json=True)


def test_the_command_looks_at_this_users_own_server_and_leaves_no_fork_on_it(tmp_path: Path) -> None:
    try:
        done = redteam("doctor", "--size", "9", XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "our own, kept between launches" in done.stdout
        assert redteam("forks", "list", XDG_CACHE_HOME=str(tmp_path)).stdout.count("rt_") == 0
    finally:
        data = state.named(tmp_path / "redteam")
        if data is not None:
            homes.remove((data,))


def test_the_programs_of_the_wheel_are_tried_as_the_user_who_would_run_them() -> None:
    programs = find_programs(None)
    assert programs.version.startswith("18.")
    assert (programs.user is None) == (os.geteuid() != 0)
    with pytest.raises(UsageError, match="nobody-of-this-name"):
        find_programs("nobody-of-this-name")

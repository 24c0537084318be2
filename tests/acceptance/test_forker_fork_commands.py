"""`redteam forks`: what a person sees and does."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import anyio.to_thread
import pytest
from support.cli import dsn_of, environment
from support.databases import connected
from support.forks import made_template
from typer.testing import CliRunner

from redteam_forker.fork import create_fork, drop_fork, list_forks
from redteam_forker.ledger import entries_of
from redteam_forker.registry import open_registry
from redteam_harness.cli.forks import app
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

# What the `redteam` command does, with the commands mounted.
_REDTEAM = """
from redteam_harness.cli import forks, main
main.app.add_typer(forks.app)
main.main()
"""


@pytest.fixture(scope="module")
async def template(server: Server) -> AsyncIterator[Template]:
    async with made_template(server, "CREATE TABLE t (id int PRIMARY KEY); -- commands") as made:
        yield made


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


async def forks(server: Server, *arguments: str) -> Done:
    """Run a command in a thread: a process of its own costs a second."""
    command, *rest = arguments

    def run() -> Done:
        result = CliRunner().invoke(app, [command, "--server", dsn_of(server), *rest])
        if result.exception is None or isinstance(result.exception, SystemExit):
            return Done(result.exit_code, result.stdout, result.stderr)
        assert isinstance(result.exception, UsageError), result.exception
        return Done(2, result.stdout, str(result.exception))

    return await anyio.to_thread.run_sync(run)


async def in_a_process(server: Server, *arguments: str) -> Done:
    """Run a command as a person does."""
    command, *rest = arguments
    run = functools.partial(
        subprocess.run,
        [sys.executable, "-c", _REDTEAM, "forks", command, "--server", dsn_of(server), *rest],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    done = await anyio.to_thread.run_sync(run)
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


async def left_by_a_launcher(server: Server, template: Template, label: str) -> Fork:
    async with open_registry(server) as registry:
        return await create_fork(server, template, lifetime_s=60, registry=registry, label=label)


async def test_list_shows_whose_each_fork_is(server: Server, template: Template) -> None:
    empty = await forks(server, "list")
    assert (empty.returncode, empty.stdout) == (0, "no forks on this server\n")
    left = await left_by_a_launcher(server, template, "left/c002")
    stray = await create_fork(server, template, lifetime_s=60)
    async with open_registry(server) as registry:
        mine = await create_fork(server, template, lifetime_s=60, registry=registry, label="run/c001")
        listed = await forks(server, "list")
        as_json = json.loads((await forks(server, "list", "--json")).stdout)
        lines = [line.split() for line in listed.stdout.splitlines()]
        assert lines[0] == ["NAME", "STATE", "TEMPLATE", "AGE", "LEASE", "LAUNCHER", "LABEL"]
        code = template.name.split("_")[2]
        by_name = {line[0]: line for line in lines[1:]}
        assert set(by_name) == {left.name, stray.name, mine.name}
        assert [by_name[mine.name][i] for i in (1, 2, 4, 7, -1)] == ["leased", code, "s", "alive", "run/c001"]
        assert "gone" in by_name[left.name]
        assert by_name[left.name][-1] == "left/c002"
        assert by_name[stray.name][1:] == ["unregistered", code, "-", "-", "-", "-"]
        states = {one["name"]: one["state"] for one in as_json}
        assert states == {left.name: "leased", stray.name: "unregistered", mine.name: "leased"}
        await drop_fork(server, mine, registry=registry)
    dry = await forks(server, "gc", "--dry-run")
    assert dry.stdout.splitlines() == [
        f"would drop  {left.name}",
        f"left        {stray.name}  (in no registry; --unregistered drops it once it is old)",
    ]
    done = await forks(server, "gc")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"dropped     {left.name}")
    await drop_fork(server, stray)
    assert (await forks(server, "gc")).stdout == "nothing to drop\n"


async def test_kept_fork_stays_until_it_is_dropped_by_its_label(server: Server, template: Template) -> None:
    fork = await left_by_a_launcher(server, template, "keep/c003")
    kept = await forks(server, "keep", fork.name)
    assert kept.stdout == f"kept {fork.name}; `redteam forks drop` removes it\n"
    assert (await forks(server, "gc")).stdout == f"kept        {fork.name}\n"
    dropped = await forks(server, "drop", "keep/c003")
    assert (dropped.returncode, dropped.stdout) == (0, f"dropped {fork.name}\n")
    assert fork.name not in await list_forks(server)
    assert await entries_of(server) == ()


async def test_psql_opens_the_fork_past_its_login_trigger(server: Server, template: Template) -> None:  # P28
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        async with connected(server, fork.name) as session:
            await session.execute(
                "CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql"
                " AS $$ BEGIN RAISE 'closed'; END $$"
            )
            await session.execute("CREATE EVENT TRIGGER door ON login EXECUTE FUNCTION no()")
            await session.execute("ALTER EVENT TRIGGER door ENABLE ALWAYS")
        done = await in_a_process(server, "psql", fork.name, "-A", "-t", "-c", "SELECT current_database()")
        assert (done.returncode, done.stdout.strip()) == (0, fork.name)
        failed = await in_a_process(server, "psql", fork.name, "-c", "SELECT nothing")
        assert (failed.returncode, "nothing" in failed.stderr) == (1, True)
        await drop_fork(server, fork, registry=registry)


async def test_fork_that_a_living_launcher_uses_is_dropped_by_force_only(
    server: Server, template: Template
) -> None:
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry)
        refused = await forks(server, "drop", fork.name)
        assert refused.returncode == 2
        assert f"fork '{fork.name}' is leased and its launcher is alive (process " in refused.stderr
        assert fork.name in await list_forks(server)
        assert (await forks(server, "drop", fork.name, "--force")).returncode == 0
        assert not await drop_fork(server, fork, registry=registry)


async def test_wrong_name_is_answered_with_what_is_near(server: Server, template: Template) -> None:
    none = await in_a_process(server, "keep", "anything")
    assert none.returncode == 2
    assert none.stderr == "redteam: there is no fork 'anything': no forks on this server\n"
    async with open_registry(server) as registry:
        fork = await create_fork(server, template, lifetime_s=60, registry=registry, label="20270101/c001")
        wrong = fork.name[:-1] + ("a" if fork.name[-1] != "a" else "b")
        for name, near in ((wrong, fork.name), ("c001", "20270101/c001"), (fork.name[-6:], fork.name)):
            done = await forks(server, "psql", name)
            assert done == (2, "", f"there is no fork '{name}' on this server; near: {near}")
        await drop_fork(server, fork, registry=registry)


async def test_unregistered_fork_can_be_kept_and_dropped(server: Server, template: Template) -> None:
    fork = await create_fork(server, template, lifetime_s=60)
    assert (await forks(server, "keep", fork.name)).returncode == 0
    (entry,) = await entries_of(server)
    assert (entry.name, entry.state, entry.template) == (fork.name, "kept", template.name)
    assert (await forks(server, "drop", fork.name)).returncode == 0
    other = await create_fork(server, template, lifetime_s=60)
    assert (await forks(server, "drop", other.name)).returncode == 0
    assert other.name not in await list_forks(server)


async def test_what_cannot_be_dropped_is_told_and_the_exit_code_says_so(
    server: Server, template: Template
) -> None:  # P38
    fork = await left_by_a_launcher(server, template, "stuck/c001")
    async with connected(server) as session:
        await session.execute(f'GRANT CONNECT ON DATABASE postgres TO "{fork.name}"')
        done = await forks(server, "gc")
        assert done.returncode == 3
        assert f"cannot drop '{fork.name}': " in done.stderr
        await session.execute(f'REVOKE CONNECT ON DATABASE postgres FROM "{fork.name}"')
    assert (await forks(server, "gc")).stdout == f"dropped     {fork.name}\n"


def test_help_names_every_command() -> None:
    done = CliRunner().invoke(app, ["--help"])
    assert all(f"  {command}  " in done.stdout for command in ("list", "psql", "keep", "drop", "gc"))

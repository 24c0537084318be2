"""What the commands of `redteam forks` do."""

from __future__ import annotations

import difflib
import json
import signal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import typer

from redteam_forker import open_registry
from redteam_forker.fork import drop_by_name
from redteam_forker.ledger import entries_of
from redteam_forker.sweep import drop_entry, find_unregistered, sweep
from redteam_harness.cli.servers import chosen_server
from redteam_harness.cli.settings import read_settings
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redteam_forker import Entry, Registry, Server
    from redteam_forker.sweep import Swept

__all__ = [
    "ForkNotFound",
    "collect_garbage",
    "drop_fork",
    "found_fork",
    "keep_fork",
    "list_forks",
    "on_server",
    "open_psql",
    "table",
]

_T = TypeVar("_T")
_EXIT_FAULT = 3
_HEADER = ("NAME", "STATE", "TEMPLATE", "AGE", "LEASE", "LAUNCHER", "LABEL")
_UNREGISTERED = "in no registry; --unregistered drops it once it is old"
_NEAR = 3
_ATTEMPTS = 3
# What a person's terminal needs; psql's own environment is whole, and inherits nothing else.
_OF_THE_TERMINAL = ("TERM", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "PAGER", "PSQL_PAGER", "EDITOR", "COLUMNS")


class ForkNotFound(UsageError):
    """A server has no fork of the name that was given."""


class _Fork(NamedTuple):
    """A fork as a person names it; `entry` is None for one that nobody registered."""

    name: str
    entry: Entry | None


def list_forks(dsn: str | None, *, as_json: bool) -> None:
    """Print the forks of a server."""

    async def work(server: Server) -> list[_Fork]:
        return await _forks(server)

    forks = on_server(dsn, work)
    if as_json:
        typer.echo(json.dumps([_facts(fork) for fork in forks], ensure_ascii=False))
    else:
        typer.echo(table(forks))


def open_psql(dsn: str | None, name: str, arguments: Sequence[str]) -> int:
    """Run psql in a fork, with our terminal; its exit code.

    Raises:
        UsageError: there is no such fork.
    """

    async def work(server: Server) -> int:
        fork = await found_fork(server, name)
        if fork.entry is not None and not fork.entry.there:
            raise UsageError(f"fork {fork.name!r} has no database now: it is {fork.entry.state}")
        command = server.psql(fork.name)
        environment = read_settings().environment
        env = {**command.env, **{key: environment[key] for key in _OF_THE_TERMINAL if key in environment}}
        # psql has the terminal and answers Ctrl-C itself; we hold the server open until it is done.
        with anyio.open_signal_receiver(signal.SIGINT):
            process = await anyio.open_process(
                [*command.argv, *arguments], stdin=None, stdout=None, stderr=None, env=env
            )
            return await process.wait()

    return on_server(dsn, work)


def keep_fork(dsn: str | None, name: str) -> None:
    """Keep a fork until it is dropped by name.

    Raises:
        UsageError: there is no such fork, or it is not whole.
    """

    async def work(server: Server, registry: Registry) -> str:
        for _ in range(_ATTEMPTS):
            fork = await found_fork(server, name)
            if fork.entry is None:
                await registry.adopt(fork.name)
                return fork.name
            if fork.entry.state in ("creating", "dropping"):
                raise UsageError(f"fork {fork.name!r} cannot be kept: it is {fork.entry.state}")
            if await registry.keep(fork.entry):
                return fork.name
        raise EnvironmentFault(f"fork {name!r} changes all the time; try again", retryable=True)

    typer.echo(f"kept {_registered(dsn, work)}; `redteam forks drop` removes it")


def drop_fork(dsn: str | None, name: str, *, force: bool) -> None:
    """Drop a fork.

    Raises:
        UsageError: there is no such fork, or a launcher that lives uses it.
        DropFailed: it is still there.
    """

    async def work(server: Server, registry: Registry) -> str:
        for _ in range(_ATTEMPTS):
            fork = await found_fork(server, name)
            if fork.entry is None:
                await drop_by_name(server, fork.name, registry=None)
                return fork.name
            if fork.entry.liveness in ("alive", "silent") and not force:
                raise UsageError(
                    f"fork {fork.name!r} is {fork.entry.state} and its launcher is {_launcher(fork.entry)}; "
                    "stop that, or drop the fork all the same with --force"
                )
            if await drop_entry(server, registry, fork.entry):
                return fork.name
        raise EnvironmentFault(f"fork {name!r} changes all the time; try again", retryable=True)

    typer.echo(f"dropped {_registered(dsn, work)}")


def collect_garbage(dsn: str | None, *, dry_run: bool, unregistered: bool) -> int:
    """Sweep a server, and print what became of what; the exit code."""

    async def work(server: Server) -> Swept:
        return await sweep(server, dry_run=dry_run, unregistered=unregistered)

    swept = on_server(dsn, work)
    lines = [
        *(f"dropped     {name}" for name in swept.dropped),
        *(f"would drop  {name}" for name in swept.would_drop),
        *(f"kept        {name}" for name in swept.kept),
        *(
            f"left        {name}  (in no registry; --unregistered drops it once it is old)"
            for name in swept.reported
        ),
    ]
    typer.echo("\n".join(lines) or "nothing to drop")
    for failure in swept.failed:
        typer.echo(f"redteam: {failure.reason}", err=True)
    return _EXIT_FAULT if swept.failed else 0


def table(forks: Sequence[_Fork]) -> str:
    """The forks as a person reads them."""
    if not forks:
        return "no forks on this server"
    rows = [_HEADER, *(_row(fork) for fork in forks)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(fork: _Fork) -> tuple[str, ...]:
    entry = fork.entry
    if entry is None:
        return (fork.name, "unregistered", _code(fork.name), "-", "-", "-", "-")
    lease = "-" if entry.lease_s is None else _span(entry.lease_s) if entry.lease_s > 0 else "over"
    return (
        entry.name,
        entry.state,
        _code(entry.name),
        _span(entry.age_s),
        lease,
        _launcher(entry),
        entry.label or "-",
    )


def _facts(fork: _Fork) -> dict[str, Any]:
    entry = fork.entry
    if entry is None:
        return {"name": fork.name, "state": "unregistered"}
    process = entry.process
    return {
        "name": entry.name,
        "state": entry.state,
        "template": entry.template,
        "label": entry.label,
        "created_at": entry.created_at.isoformat(),
        "age_s": round(entry.age_s, 3),
        "lease_s": None if entry.lease_s is None else round(entry.lease_s, 3),
        "launcher": process
        and {"id": entry.launcher, "liveness": entry.liveness, "host": process.host, "pid": process.pid},
    }


def _code(name: str) -> str:
    """The eight letters that a fork's name has of its template's."""
    return name.split("_")[2]


def _launcher(entry: Entry) -> str:
    if entry.process is None:
        return "-"
    return f"{entry.liveness} (process {entry.process.pid} on {entry.process.host})"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


async def _forks(server: Server) -> list[_Fork]:
    found = await find_unregistered(server, None)
    entries = await entries_of(server)
    return [*(_Fork(entry.name, entry) for entry in entries), *(_Fork(one.name, None) for one in found)]


async def found_fork(server: Server, name: str) -> _Fork:
    """The fork that a person means by its name or its label.

    Raises:
        ForkNotFound: there is none; says what is near.
        UsageError: there are several of this label.
    """
    forks = await _forks(server)
    for fork in forks:
        if fork.name == name:
            return fork
    labelled = [fork for fork in forks if fork.entry is not None and fork.entry.label == name]
    if len(labelled) == 1:
        return labelled[0]
    if labelled:
        names = ", ".join(fork.name for fork in labelled)
        raise UsageError(f"{len(labelled)} forks bear the label {name!r}, name one of them: {names}")
    if not forks:
        raise ForkNotFound(f"there is no fork {name!r}: no forks on this server")
    known = [
        *(fork.name for fork in forks),
        *(fork.entry.label for fork in forks if fork.entry and fork.entry.label),
    ]
    inside = [one for one in known if name and name in one]
    near = [*inside, *difflib.get_close_matches(name, known, n=_NEAR, cutoff=0.6)]
    listed = (
        ", ".join(dict.fromkeys(near[:_NEAR])) or f"none is near; `redteam forks list` shows all {len(forks)}"
    )
    raise ForkNotFound(f"there is no fork {name!r} on this server; near: {listed}")


def on_server(dsn: str | None, work: Callable[[Server], Awaitable[_T]]) -> _T:
    """Do something on the server that was chosen."""

    async def run() -> _T:
        async with chosen_server(dsn, read_settings()) as server:
            return await work(server)

    return anyio.run(run)


def _registered(dsn: str | None, work: Callable[[Server, Registry], Awaitable[_T]]) -> _T:
    """The same, as a launcher: what is taken over here is ours to finish, or the next sweep's."""

    async def run(server: Server) -> _T:
        async with open_registry(server) as registry:
            return await work(server, registry)

    return on_server(dsn, run)

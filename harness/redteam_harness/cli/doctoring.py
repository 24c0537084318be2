"""`redteam doctor`: what is here, what the server is, what fits on it, and what a fork costs there."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.to_thread
from rich.console import Console
from rich.markup import escape

from redteam_forker.doctor import advice, diagnose, find_programs, what_rights_lack
from redteam_harness.cli.servers import chosen_server
from redteam_sdk import __version__
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Collection

    from redteam_forker.doctor import Diagnosis, Programs
    from redteam_harness.cli.settings import Settings

__all__ = ["DEFAULT_SIZE_MB", "Line", "run_doctor", "sections"]

DEFAULT_SIZE_MB = 16
EXIT_FINE = 0
EXIT_FAULT = 3
_MIB = 1 << 20
_MARKS = {"good": "[green]✓[/]", "note": "[yellow]![/]", "bad": "[red]✗[/]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing that was looked at.

    Attributes:
        mark: `good`, `note` (works, but read this), or `bad` (it cannot be used).
        about: what was looked at, in a word.
        text: what was found.
    """

    mark: Literal["good", "note", "bad"]
    about: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """All that was looked at.

    Attributes:
        programs: the wheel's, or the fault that they have.
        server: the diagnosis, or the fault that kept us from it.
        has_key: whether a model's key is set.
    """

    programs: Programs | EnvironmentFault
    server: Diagnosis | EnvironmentFault
    has_key: bool


def run_doctor(
    dsn: str | None,
    settings: Settings,
    *,
    as_json: bool,
    size_mb: int = DEFAULT_SIZE_MB,
    allow_databases: Collection[str] = (),
) -> int:
    """Look, print, and return the exit code: 0, or 3 when the server cannot be used.

    Args:
        dsn: the server to look at; None is the one that a launch without `--server` uses.
        settings: the launcher's.
        as_json: print plain data instead.
        size_mb: how large a template the fork is measured with.
        allow_databases: databases on the server that forks' roles may be able to enter.

    Raises:
        UsageError: the DSN or a setting cannot be read.
    """
    console = Console(highlight=False)
    waiting = f"measuring a fork of {size_mb} MB"
    if console.is_terminal and not as_json:
        with console.status(waiting):
            found = anyio.run(_look, dsn, settings, size_mb, allow_databases)
    else:
        found = anyio.run(_look, dsn, settings, size_mb, allow_databases)
    usable = not isinstance(found.server, EnvironmentFault)
    if as_json:
        sys.stdout.write(json.dumps(_data(found), ensure_ascii=False) + "\n")
    else:
        _print(console, found)
        outcome = "exit 0: forks can be made here" if usable else "exit 3: this server cannot be used"
        console.print(f"\n{outcome}")
    return EXIT_FINE if usable else EXIT_FAULT


async def _look(
    dsn: str | None, settings: Settings, size_mb: int, allow_databases: Collection[str]
) -> _Found:
    # Who runs PostgreSQL is our matter on our own server only, as is whether anybody can.
    run_as = settings.postgres_user if dsn is None else None
    programs: Programs | EnvironmentFault
    try:
        programs = await anyio.to_thread.run_sync(find_programs, run_as)
    except EnvironmentFault as fault:
        programs = fault
    server: Diagnosis | EnvironmentFault
    try:
        async with chosen_server(dsn, settings, allow_databases=allow_databases) as opened:
            server = await diagnose(opened, template_bytes=size_mb * _MIB)
    except EnvironmentFault as fault:
        server = fault
    return _Found(programs=programs, server=server, has_key=settings.api_key is not None)


def sections(
    programs: Programs | EnvironmentFault, server: Diagnosis | EnvironmentFault, *, has_key: bool
) -> dict[str, list[Line]]:
    """What is printed: sections in order, each with its lines. Pure."""
    shown = {"Here": _here(programs, has_key=has_key)}
    if isinstance(server, EnvironmentFault):
        shown["Server"] = [Line(mark="bad", about="server", text=str(server))]
        return shown
    shown["Server"] = _server(server)
    shown["Rights"] = _rights(server)
    shown["Limits"] = _limits(server)
    if server.cost is None:
        shown["A fork"] = [Line(mark="note", about="cost", text=f"not measured: {server.unmeasured}")]
    else:
        size = _size(server.cost.template_bytes)
        shown[f"A fork of {size}, measured now (median of {server.cost.rounds})"] = _cost(server)
    said = advice(server)
    shown["What would make it cheaper"] = [Line(mark="note", about="", text=text) for text in said] or [
        Line(mark="good", about="", text="nothing that we know of")
    ]
    return shown


def _here(programs: Programs | EnvironmentFault, *, has_key: bool) -> list[Line]:
    lines = [
        Line(
            mark="good",
            about="redteam",
            text=f"{__version__}, Python {platform.python_version()}, {platform.system()}",
        )
    ]
    if isinstance(programs, EnvironmentFault):
        lines.append(Line(mark="bad", about="programs", text=str(programs)))
    else:
        whom = f", run as user {programs.user!r}, since root may not" if programs.user else ""
        text = f"PostgreSQL {programs.version} from {programs.directory}{whom}"
        lines.append(Line(mark="good", about="programs", text=text))
    if has_key:
        lines.append(Line(mark="good", about="model", text="ANTHROPIC_API_KEY is set"))
    else:
        text = "ANTHROPIC_API_KEY is not set: launches are offline, with scripted stand-ins"
        lines.append(Line(mark="note", about="model", text=text))
    return lines


_KINDS = {"embedded": "our own", "docker": "our own, in a container", "existing": "yours"}


def _server(found: Diagnosis) -> list[Line]:
    facts, storage = found.facts, found.storage
    kind = _KINDS.get(facts.kind, facts.kind) + (", kept between launches" if facts.shared else "")
    lines = [Line(mark="good", about="server", text=f"PostgreSQL {facts.version}, {kind}")]
    if storage.file_system is None:
        where = storage.directory or "its place is hidden from our role"
        lines.append(
            Line(mark="note", about="data", text=f"{where}; its file system cannot be seen from here")
        )
    else:
        why = f" ({facts.placement.partition(': ')[2]})" if facts.placement else ""
        text = f"{storage.directory} on {storage.file_system or 'an unknown file system'}{why}"
        lines.append(Line(mark="good", about="data", text=text))
    if facts.clone:
        lines.append(Line(mark="good", about="cloning", text="a fork shares its template's blocks"))
    else:
        lines.append(Line(mark="note", about="cloning", text="none: a fork copies its template"))
    return lines


def _rights(found: Diagnosis) -> list[Line]:
    rights = found.rights
    held = [name for name, has in (("CREATEDB", rights.createdb), ("CREATEROLE", rights.createrole)) if has]
    lacking = what_rights_lack(rights)
    if lacking is None:
        return [Line(mark="good", about="role", text=f"{rights.role!r} is superuser: nothing is missing")]
    return [
        Line(mark="good", about="role", text=f"{rights.role!r} has {' and '.join(held)}: forks can be made"),
        Line(mark="note", about="missing", text=lacking),
    ]


def _limits(found: Diagnosis) -> list[Line]:
    room, storage = found.room, found.storage
    lines = [
        Line(
            mark="good" if room.conversations else "bad",
            about="sessions",
            text=f"{room.sessions} admitted, {room.sessions_used} in use: "
            f"up to {room.conversations} conversations at once",
        )
    ]
    if storage.free_bytes is None or room.forks is None:
        text = "how much is free cannot be seen from here"
        lines.append(Line(mark="note", about="room", text=text))
    else:
        what = "of memory" if storage.file_system == "tmpfs" else "of disk"
        text = f"{_size(storage.free_bytes)} {what} are free: up to {room.forks:,} forks of this size at once"
        lines.append(Line(mark="good" if room.forks else "bad", about="room", text=text))
    return lines


def _cost(found: Diagnosis) -> list[Line]:
    cost = found.cost
    assert cost is not None
    lines = [
        Line(mark="good", about=about, text=text)
        for about, text in (
            ("template", f"{_time(cost.template_s)} to build, once for a seed"),
            ("fork", f"{_time(cost.fork_s)} to make one, with its role"),
            ("answer", f"{_time(cost.first_answer_s)} from asking for one to its first answer"),
            ("drop", f"{_time(cost.drop_s)}"),
        )
    ]
    if cost.disk_bytes is None:
        return [*lines, Line(mark="note", about="disk", text="cannot be seen from here")]
    return [*lines, Line(mark="good", about="disk", text=f"{_size(cost.disk_bytes)} for each")]


def _print(console: Console, found: _Found) -> None:
    for title, lines in sections(found.programs, found.server, has_key=found.has_key).items():
        console.print(f"[bold]{escape(title)}[/]")
        for line in lines:
            about = f"{line.about:<10}" if line.about else ""
            console.print(f"  {_MARKS[line.mark]} {about}{escape(line.text)}", soft_wrap=True)


def _data(found: _Found) -> dict[str, Any]:
    programs, server = found.programs, found.server
    faulty = isinstance(server, EnvironmentFault)
    return {
        "usable": not faulty,
        "redteam": __version__,
        "python": platform.python_version(),
        "model_key": found.has_key,
        "programs": {"fault": str(programs)} if isinstance(programs, EnvironmentFault) else asdict(programs),
        "fault": str(server) if isinstance(server, EnvironmentFault) else None,
        **({} if isinstance(server, EnvironmentFault) else server.to_json()),
        "advice": [] if isinstance(server, EnvironmentFault) else list(advice(server)),
    }


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


def _size(size_bytes: int) -> str:
    if size_bytes >= 10 << 30:
        return f"{size_bytes / (1 << 30):.0f} GB"
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.1f} GB"
    if size_bytes >= 10 << 20:
        return f"{size_bytes / (1 << 20):.0f} MB"
    return f"{size_bytes / (1 << 20):.1f} MB"

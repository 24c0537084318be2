"""`redteam init`: a small suite that launches as it is, or one that is drafted for a seed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from rich.console import Console

from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from redteam_harness.cli.settings import Settings
    from redteam_harness.drafting.draft import Draft

__all__ = ["InitCommand", "run_init", "write_starter"]

_FILES = ("suite.yaml", "rules.yaml", "schema.sql", "agent.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitCommand:
    """The arguments of `redteam init`, as `redteam init --help` explains them."""

    directory: Path
    seeds: tuple[Path, ...]
    agent: str | None
    people: str | None
    server: str | None


def run_init(command: InitCommand, settings: Settings) -> list[Path]:
    """Write a suite and return its files: the starter, or with seeds one that is drafted for them.

    Raises:
        UsageError: something is there already, or the seed is refused; nothing was written.
        EnvironmentFault: the folder cannot be written, or the server cannot be used.
    """
    _refuse_existing(command.directory)
    if not command.seeds:
        if command.agent or command.people or command.server:
            raise UsageError("--agent, --people and --server are for data of yours; name it by --seed PATH")
        return write_starter(command.directory)
    for seed in command.seeds:
        if not seed.exists():
            raise UsageError(f"--seed {seed} is not there; name SQL files, a dump, or a folder of either")
    return _write_drafted(command, settings)


def write_starter(directory: Path) -> list[Path]:
    """Write the starter suite into a folder that does not exist, or is empty.

    Raises:
        UsageError: something is there already; nothing was written.
        EnvironmentFault: the folder cannot be written.
    """
    _refuse_existing(directory)
    source = files("redteam_harness") / "starter"
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            path = directory / name
            path.write_text((source / name).read_text(encoding="utf-8"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise EnvironmentFault(f"{directory} cannot be written: {error.strerror}") from error
    return written


def _refuse_existing(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is there already and not an empty folder; name a new one")


def _write_drafted(command: InitCommand, settings: Settings) -> list[Path]:
    """Draft in a folder beside, and give it its name when it is whole: a failure leaves nothing."""
    target = command.directory.absolute()
    made = _missing(target.parent)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        _remove(made)
        raise EnvironmentFault(f"{command.directory} cannot be written: {error.strerror}") from error
    try:
        part.chmod(0o777 & ~_umask())
        here = target.parent.resolve() / target.name
        seeds = tuple(os.path.relpath(seed.resolve(), here) for seed in command.seeds)
        draft = anyio.run(_draft, command, settings, part, target.name, seeds)
        try:
            part.rename(target)
        except OSError as error:
            raise EnvironmentFault(f"{command.directory} cannot be written: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        _remove(made)
        raise
    for note in draft.notes:
        Console(stderr=True, highlight=False).print(note, markup=False, soft_wrap=True)
    written = (path.relative_to(target) for path in sorted(target.rglob("*")) if path.is_file())
    return [command.directory / path for path in written]


async def _draft(
    command: InitCommand, settings: Settings, part: Path, folder_name: str, seeds: tuple[str, ...]
) -> Draft:
    import asyncpg

    from redteam_forker import open_registry
    from redteam_harness.cli.servers import chosen_server
    from redteam_harness.drafting import Drafting, draft_suite, suite_name
    from redteam_harness.launch.progress import Progress

    console = Console(stderr=True, highlight=False)
    name = suite_name(folder_name)
    task = Drafting(
        folder=part,
        name=name,
        files=seeds,
        agent=_agent_lines(command.agent),
        people=command.people,
        today=datetime.now().astimezone().date(),
    )
    progress = Progress(console=console, suite=name, live=False, quiet=True)
    async with chosen_server(command.server, settings) as server, open_registry(server) as registry:
        try:
            return await draft_suite(server, registry, task, progress)
        except asyncpg.PostgresError as error:
            raise EnvironmentFault(
                f"the seed could not be read: {type(error).__name__} ({error.sqlstate}) in a query of ours; "
                "name another table by --people TABLE, or write the suite by hand (docs/suites.md)"
            ) from error


def _agent_lines(agent: str | None) -> str:
    """`agent` of suite.yaml, as lines: a deployed service, a Python callable, or a program."""
    if agent is None:
        return ""
    if re.match(r"https?://", agent):
        return f"url: {_quoted(agent)}"
    if re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", agent):
        return f"python: {agent}"
    try:
        words = shlex.split(agent)
    except ValueError as error:
        raise UsageError(f"--agent {agent!r} is no command line: {error}") from None
    if not words:
        raise UsageError("--agent is empty; name module:callable, an http(s) address, or a command line")
    command = ", ".join(map(_quoted, words))
    return f"command: [{command}]\nenv: DATABASE_URL   # decide: which variable your program reads"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _missing(folder: Path) -> list[Path]:
    """Folders that are not there, the innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing


def _remove(made: list[Path]) -> None:
    for folder in made:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

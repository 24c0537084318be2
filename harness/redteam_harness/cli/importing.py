"""`redteam import`: reads a file of real conversations, finds their rows, and writes cases and a run."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import typer
from rich.console import Console

from redteam_forker.changes.render import visible
from redteam_harness.cli.servers import chosen_server
from redteam_harness.evidence.storage import json_text, write_text, writing
from redteam_harness.exchange.history import case_names, read_history
from redteam_harness.exchange.imported import Placed, suite_text
from redteam_harness.exchange.personal import read_replacements
from redteam_harness.exchange.recording import Degraded, to_lines
from redteam_harness.exchange.rows import find_row
from redteam_harness.exchange.run import Source, cast_of, write_run
from redteam_harness.launch.progress import Progress
from redteam_harness.launch.suite import load_suite
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from redteam_harness.cli.settings import Settings
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.exchange.history import Format, History
    from redteam_harness.exchange.personal import Replacements
    from redteam_harness.exchange.recording import Recorded
    from redteam_harness.exchange.rows import Candidate
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast, Persona

__all__ = ["ImportCommand", "run_import"]

_EXIT_DONE, _EXIT_REFUSED = 0, 1
_FOLDER = "imported"
_MAX_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCommand:
    """The arguments of `redteam import`, as its `--help` explains them."""

    file: Path
    suite: Path | None
    format: Format | None
    persona: str | None
    like: str | None
    replace: Path | None
    name: str | None
    skip_degraded: bool
    check: bool
    server: str | None
    json: bool
    out: Path


def run_import(command: ImportCommand, settings: Settings) -> int:
    """Import, say what was done, and return the exit code.

    Raises:
        UsageError: a file cannot be used, a row or a case is to be named, or a name is taken.
        EnvironmentFault: the server failed, or something cannot be written; nothing was imported.
    """
    if command.suite is None and (command.persona or command.like):
        raise UsageError("--persona and --like go with --suite DIR")
    console = Console(highlight=False, stderr=command.json)
    history = read_history(command.file, format=command.format)
    facts = _facts(history)
    _say_read(console, history)
    if not history.whole or (history.degraded and not command.skip_degraded):
        return _refused(command, console, facts, history.degraded)
    replacements = None if command.replace is None else read_replacements(command.replace)
    try:
        whole = [one if replacements is None else replacements.recording(one) for one in history.whole]
    except Degraded as error:
        return _refused(command, console, facts, [error])
    if replacements is not None:
        facts["replaced"] = _say_replaced(console, replacements)
    if command.check:
        return _done(command, facts)
    names = case_names(command.name or command.file.stem, whole)
    if command.suite is None:
        facts["files"] = [str(path) for path in _write_recordings(Path(_FOLDER), names, whole)]
        for path in facts["files"]:
            console.print(f"wrote {path}", markup=False, soft_wrap=True)
        return _done(command, facts)
    suite = load_suite(command.suite)
    today = _day_of(console, suite, whole)
    progress = Progress(console=console, suite=suite.name, live=False, quiet=command.json)
    cast = anyio.run(_draw, suite, command.server, settings, progress, today)
    placed = _place(command, suite, cast, names, whole)
    source = Source(
        file=command.file.name,
        format=history.format,
        digest=hashlib.sha256(command.file.read_bytes()).hexdigest(),
        replaced=None if replacements is None else sum(replacements.counts),
    )
    run, files = _write(command, suite, placed, source, settings, progress, today)
    _say_placed(console, placed, files, run)
    facts |= {
        "files": [str(path) for path in files],
        "run": run.id,
        "cases": [{"case": one.name, "persona": one.persona.key, "by": one.because} for one in placed],
    }
    return _done(command, facts)


def _facts(history: History) -> dict[str, Any]:
    return {
        "format": history.format,
        "imported": [{"conversation": one.name, "turns": one.turns} for one in history.whole],
        "refused": [{"conversation": one.conversation, "missing": one.missing} for one in history.degraded],
        "other": dict(history.other),
    }


def _done(command: ImportCommand, facts: dict[str, Any]) -> int:
    if command.json:
        sys.stdout.write(json_text(facts) + "\n")
    return _EXIT_DONE


def _refused(
    command: ImportCommand, console: Console, facts: dict[str, Any], degraded: Sequence[Degraded]
) -> int:
    """Say what is missing; not one step is imported."""
    facts |= {
        "imported": [],
        "refused": [{"conversation": one.conversation, "missing": one.missing} for one in degraded],
    }
    if not degraded:
        console.print("there is no conversation in it", markup=False)
    elif facts["format"] and len(degraded) and not command.skip_degraded:
        console.print("nothing was imported; --skip-degraded imports those that are whole", markup=False)
    _done(command, facts)
    return _EXIT_REFUSED


# Rows and cases ----------------------------------------------------------------------------------------


def _place(
    command: ImportCommand, suite: Suite, cast: Cast, names: Sequence[str], whole: Sequence[Recorded]
) -> list[Placed]:
    if command.persona is not None and len(whole) > 1:
        raise UsageError(f"--persona is for one conversation, and {command.file} has {len(whole)}")
    placed = []
    for name, recording in zip(names, whole, strict=True):
        persona, because = _row(command, cast, recording)
        like = _like(command, suite, recording)
        placed.append(Placed(name=name, recording=recording, persona=persona, like=like, because=because))
    return placed


def _row(command: ImportCommand, cast: Cast, recording: Recorded) -> tuple[Persona, str]:
    by_key = {persona.key: persona for persona in cast.personas}
    if command.persona is not None:
        if command.persona not in by_key:
            raise UsageError(f"the cast has no row {command.persona!r}; `redteam personas` lists it")
        return by_key[command.persona], "--persona"
    if recording.persona is not None and recording.persona in by_key:
        return by_key[recording.persona], "the file says so"
    found = find_row(recording, cast)
    if found.one is not None:
        return found.one.persona, ", ".join(found.one.told)
    asked = _ask(
        f"Which row does {recording.name} belong to? (a key)",
        {one.persona.key: _described(one) for one in found.candidates[:_MAX_SHOWN]},
        allowed=by_key,
    )
    if asked is not None:
        return by_key[asked], "asked for"
    lines = [f"  {one.persona.key}  {_described(one)}" for one in found.candidates[:_MAX_SHOWN]]
    more = len(found.candidates) - len(lines)
    raise UsageError(
        f"{recording.name}: it is not clear which row of the cast it belongs to; name it with --persona KEY"
        + ("; it names in part:\n" + "\n".join(lines) if lines else "; it names none")
        + (f"\n  ... and {more} more" if more > 0 else "")
    )


def _described(candidate: Candidate) -> str:
    return ", ".join(f"{name} {value}" for name, value in candidate.told.items())


def _like(command: ImportCommand, suite: Suite, recording: Recorded) -> str:
    known = [case.id for case in suite.spec.cases]
    if command.like is not None:
        if command.like not in known:
            raise UsageError(f"--like {command.like}: the suite has no such case; it has {', '.join(known)}")
        return command.like
    if recording.case in known:
        return str(recording.case)
    if len(known) == 1:
        return known[0]
    demands = {case.id: case.demand.strip().partition("\n")[0] for case in suite.spec.cases}
    asked = _ask(f"Which case is {recording.name} like?", demands, allowed=demands)
    if asked is not None:
        return asked
    raise UsageError(
        f"{recording.name}: say with --like CASE which case's rules and setup it gets; "
        f"there are {', '.join(known)}"
    )


def _ask(question: str, shown: dict[str, str], *, allowed: Any) -> str | None:
    """An answer from the terminal; None where nobody is there to ask."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    for key, text in shown.items():
        typer.echo(f"  {key}  {visible(text)}")
    while True:
        try:
            answer = typer.prompt(question).strip()
        except typer.Abort:
            raise KeyboardInterrupt from None  # Ctrl-C and the end of input; nothing was written yet
        if answer in allowed:
            return str(answer)
        typer.echo(f"there is no {answer!r}")


# Writing -----------------------------------------------------------------------------------------------


def _write(
    command: ImportCommand,
    suite: Suite,
    placed: Sequence[Placed],
    source: Source,
    settings: Settings,
    progress: Progress,
    today: dt.date,
) -> tuple[RunDirectory, list[Path]]:
    """The recordings, the suite and the run; all of them, or none."""
    name = case_names(command.name or command.file.stem, placed[:1])[0]
    path = suite.folder / f"{_FOLDER}-{name}.yaml"
    if path.exists():
        raise UsageError(f"{path} is there already; choose another --name, or remove it")
    files: list[Path] = []
    try:
        files += _write_recordings(
            suite.folder / _FOLDER, [one.name for one in placed], [one.recording for one in placed]
        )
        write_text(path, suite_text(suite, name, placed))
        files.insert(0, path)
        imported = load_suite(path)
        run = anyio.run(_write_run, imported, placed, source, command, settings, progress, today)
    except BaseException:
        for file in files:
            file.unlink(missing_ok=True)
        raise
    return run, files


def _write_recordings(folder: Path, names: Sequence[str], whole: Sequence[Recorded]) -> list[Path]:
    paths = [folder / f"{name}.jsonl" for name in names]
    taken = [str(path) for path in paths if path.exists()]
    if taken:
        raise UsageError(f"{', '.join(taken)} is there already; choose another --name, or remove it")
    with writing(folder):
        folder.mkdir(exist_ok=True)
    for path, recording in zip(paths, whole, strict=True):
        write_text(path, to_lines(recording))
    return paths


async def _draw(
    suite: Suite, dsn: str | None, settings: Settings, progress: Progress, today: dt.date
) -> Cast:
    async with chosen_server(dsn, settings) as server:
        return await cast_of(server, suite, progress, today=today)


async def _write_run(
    suite: Suite,
    placed: Sequence[Placed],
    source: Source,
    command: ImportCommand,
    settings: Settings,
    progress: Progress,
    today: dt.date,
) -> RunDirectory:
    async with chosen_server(command.server, settings) as server:
        return await write_run(server, suite, placed, source, progress, today=today, out=command.out)


def _day_of(console: Console, suite: Suite, whole: Sequence[Recorded]) -> dt.date:
    """The day on which the data is to be at home: that of the conversations, so that `tomorrow` is there."""
    began = sorted(one.began for one in whole if one.began is not None)
    if not began or suite.spec.seed.anchor is None:
        return datetime.now().astimezone().date()
    first, last = began[0].astimezone().date(), began[-1].astimezone().date()
    if first.isocalendar()[:2] != last.isocalendar()[:2]:
        console.print(
            f"the conversations are of several weeks, {first} to {last}; dates in the data are moved to the "
            "first: import the weeks one by one where dates matter",
            markup=False,
            soft_wrap=True,
        )
    return first


# Telling -----------------------------------------------------------------------------------------------


def _say_read(console: Console, history: History) -> None:
    turns = sum(one.turns for one in history.whole)
    left: dict[str, int] = dict(history.other)
    for one in history.whole:
        for kind, count in one.left_out.items():
            left[kind] = left.get(kind, 0) + count
    named = ", ".join(f"{count} {kind}" for kind, count in sorted(left.items()))
    count = len(history.whole)
    console.print(
        f"read as {history.format}: {count} whole conversation{'' if count == 1 else 's'}, "
        f"{turns} turn{'' if turns == 1 else 's'}" + (f"; left out: {named}" if named else ""),
        markup=False,
        soft_wrap=True,
    )
    for refused in history.degraded:
        console.print(f"degraded  {visible(str(refused))}", markup=False, soft_wrap=True)


def _say_replaced(console: Console, replacements: Replacements) -> dict[str, Any]:
    facts = {
        "times": sum(replacements.counts),
        "unused": replacements.unused,
        "inside_words": replacements.inside,
    }
    text = f"replaced {facts['times']} times"
    if replacements.unused:
        text += f"; entries that stand nowhere: {', '.join(map(str, replacements.unused))}"
    if replacements.inside:
        text += f"; still within longer words: entries {', '.join(map(str, replacements.inside))}"
    console.print(text, markup=False, soft_wrap=True)
    return facts


def _say_placed(console: Console, placed: Sequence[Placed], files: Sequence[Path], run: RunDirectory) -> None:
    for one in placed:
        console.print(
            f"{one.name}  row {one.persona.key}, by {one.because}; like {one.like}; "
            f"{one.recording.turns} turn{'' if one.recording.turns == 1 else 's'}",
            markup=False,
            soft_wrap=True,
        )
    more = f"{len(placed)} recording{'' if len(placed) == 1 else 's'}"
    console.print(f"wrote {files[0]} and {more}", markup=False, soft_wrap=True)
    console.print(f"run {run.path}\n  redteam replay {run.id} --level 2", markup=False, soft_wrap=True)

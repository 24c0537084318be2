"""`redteam diff`: what changed in a kept fork, or in a conversation of a run, for people and programs."""

from __future__ import annotations

import difflib
import io
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from redteam_forker.changes import ChangeSet, attributed
from redteam_forker.changes.render import (
    ALL,
    BRIEF,
    COMMENT_CHARS,
    html_page,
    of_calls,
    of_table,
    print_changes,
    shown,
    to_markdown,
    visible,
)
from redteam_forker.kept import changes_of_kept
from redteam_harness.cli.forking import ForkNotFound, found_fork, on_server
from redteam_harness.cli.output import write_output
from redteam_harness.evidence.run import open_run, read_conversation
from redteam_harness.evidence.storage import json_text
from redteam_harness.launch.judge import call_spans
from redteam_harness.report.changed import call_names
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_forker import Entry, Server
    from redteam_forker.changes.render import Shown
    from redteam_harness.evidence.run import StoredConversation

__all__ = ["DiffCommand", "Format", "run_diff"]

Format = Literal["terminal", "markdown", "html", "json"]

_BY_ENDING: Mapping[str, Format] = {".md": "markdown", ".html": "html", ".htm": "html", ".json": "json"}
_SHOWN_CALLS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffCommand:
    """The arguments of `redteam diff`, as `redteam diff --help` explains them."""

    target: str
    conversation: str | None
    call: str | None
    table: str | None
    format: Format | None
    all: bool
    output: Path | None
    out: Path
    server: str | None


class _Source(NamedTuple):
    """A change set, whose it is, and the trace of its conversation, as far as there is one.

    Attributes:
        again: the arguments that name it.
        notes: what is to be said beside it.
    """

    changes: ChangeSet
    title: str
    again: tuple[str, ...]
    events: Sequence[Mapping[str, Any]]
    notes: tuple[str, ...] = ()


def run_diff(command: DiffCommand) -> None:
    """Print or write what changed.

    Raises:
        UsageError: a name is wrong, or there is nothing to compare; says what is near.
        EnvironmentFault: a database or file cannot be read, or the output cannot be written.
    """
    source = _of_fork(command) if command.conversation is None else _of_evidence(command)
    changes, notes = source.changes, list(source.notes)
    if command.table is not None:
        changes = of_table(changes, command.table)
    if command.call is not None:
        calls = _calls(source, command.call)
        unknown = sum(row.by is None for table in changes.tables for row in table.rows)
        changes = of_calls(changes, calls)
        if unknown:
            rows = "1 row is" if unknown == 1 else f"{unknown} rows are"
            notes.append(f"{rows} left out: who wrote {'it' if unknown == 1 else 'them'} is not known")
    for note in notes:
        typer.echo(f"redteam: {note}", err=True)
    format_ = command.format or _format_of(command.output)
    if format_ == "terminal" and command.output is None:
        _print(Console(highlight=False), source, changes, command)
    else:
        write_output(_rendered(format_, source, changes, command), command.output)


def _of_evidence(command: DiffCommand) -> _Source:
    assert command.conversation is not None
    if command.server is not None:
        raise UsageError("--server says where a fork is; a conversation of a run is read from its evidence")
    run = open_run(command.target, command.out)
    stored = read_conversation(run, command.conversation)
    which = f"conversation {command.conversation} of run {run.id}"
    if stored.changes is None:
        raise UsageError(f"{which} has no change set: {_why_none(stored)}")
    try:
        changes = ChangeSet.from_json(stored.changes)
    except UsageError as error:
        raise UsageError(f"{which} has {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise EnvironmentFault(
            f"{which} has no change set that can be read: {run.conversation(command.conversation)}"
            "/changes.json was cut or edited"
        ) from error
    about = stored.about
    return _Source(
        changes=changes,
        title=f"{run.id} {about['id']}: {about['case']}, persona {about['persona']}, {about['disposition']}",
        again=(command.target, command.conversation),
        events=stored.events,
    )


def _why_none(stored: StoredConversation) -> str:
    faults = [event for event in stored.events if event["kind"] == "fault"]
    if faults:
        return f"it ended by a {faults[-1]['whose']}-fault, {faults[-1]['cause']}: {faults[-1]['message']}"
    return "it was not finished"


def _of_fork(command: DiffCommand) -> _Source:
    async def work(server: Server) -> tuple[Entry, ChangeSet]:
        fork = await found_fork(server, command.target)
        if fork.entry is None:
            raise UsageError(
                f"when fork {fork.name!r} began is not known: it is in no registry; "
                "a fork that a launch keeps (`redteam launch --keep failed`) can be compared"
            )
        return fork.entry, await changes_of_kept(server, fork.entry)

    try:
        entry, changes = on_server(command.server, work)
    except ForkNotFound as error:
        if said := _evidence_instead(command):
            raise UsageError(f"there is no fork {command.target!r}; {said}") from error
        raise
    title = f"fork {entry.name}" + (f" ({entry.label})" if entry.label else "")
    events = _trace_of(entry, command.out)
    note = (
        f"which tool call wrote what is not known: the trace of {entry.label or 'its conversation'} is not "
        f"under {command.out}; --out DIR says where runs are kept"
    )
    if events:
        changes = attributed(changes, call_spans(events))
    return _Source(changes, title, (command.target,), events, () if events else (note,))


def _evidence_instead(command: DiffCommand) -> str:
    """A target that is a run, or a run's conversation, is better read from evidence: how to say so."""
    run, _, conversation = command.target.partition("/")
    for reference, name in ((command.target, "CONVERSATION"), (run, conversation)):
        if not name:
            continue
        try:
            found = open_run(reference, command.out)
        except UsageError:
            continue
        if name == "CONVERSATION":
            return f"it is a run, so name a conversation, too: redteam diff {reference} {name}"
        if found.conversation(name).is_dir():
            return f"what it had changed is in the evidence: redteam diff {reference} {name}"
    return ""


def _trace_of(entry: Entry, base: Path) -> Sequence[Mapping[str, Any]]:
    """The events of the conversation that a fork was held in, if its run is here: its label names both."""
    run, _, conversation = entry.label.partition("/")
    if not run or not conversation:
        return ()
    try:
        events = read_conversation(open_run(run, base), conversation).events
    except (UsageError, EnvironmentFault):
        return ()
    return events if any(event.get("fork") == entry.name for event in events) else ()


def _calls(source: _Source, wanted: str) -> frozenset[str]:
    """The ids of the calls that are meant: one by its id, or all of a name."""
    calls = [event for event in source.events if event["kind"] == "tool_call"]
    found = frozenset(event["call"] for event in calls if wanted in (event["call"], event["name"]))
    if found:
        return found
    if not calls:
        raise UsageError(f"there is no call {wanted!r}: no tool call is known of {source.title}")
    there = list(dict.fromkeys(event["name"] for event in calls))
    near = difflib.get_close_matches(wanted, there, n=1)
    said = f"did you mean {near[0]!r}? " if near else ""
    listed = [f"{event['name']} ({event['call']}, turn {event['turn']})" for event in calls[:_SHOWN_CALLS]]
    rest = f" and {len(calls) - _SHOWN_CALLS} more" if len(calls) > _SHOWN_CALLS else ""
    raise UsageError(f"there is no call {wanted!r}; {said}Calls: {', '.join(listed)}{rest}")


def _format_of(output: Path | None) -> Format:
    return "terminal" if output is None else _BY_ENDING.get(output.suffix.lower(), "terminal")


def _view(source: _Source, changes: ChangeSet, command: DiffCommand) -> Shown:
    return shown(
        changes,
        names=call_names(source.events),
        bounds=ALL if command.all else BRIEF,
        every_write=command.all or command.call is not None,
    )


def _hint(source: _Source, command: DiffCommand) -> str:
    words = ["redteam", "diff", *source.again]
    for option, value in (("--table", command.table), ("--call", command.call), ("--server", command.server)):
        words += [] if value is None else [option, "DSN" if option == "--server" else value]
    return f"{shlex.join(words)} --all"


def _print(console: Console, source: _Source, changes: ChangeSet, command: DiffCommand) -> None:
    console.print(Text(visible(source.title), style="dim"), soft_wrap=True)
    hint = f"all of it: {visible(_hint(source, command))}"
    print_changes(console, _view(source, changes, command), hint=hint)


def _rendered(format_: Format, source: _Source, changes: ChangeSet, command: DiffCommand) -> str:
    title, hint = visible(source.title), visible(_hint(source, command))
    match format_:
        case "json":
            return json_text(changes.to_json(), indent=1) + "\n"
        case "html":
            return html_page(_view(source, changes, command), title=title, hint=f"All of it: {hint}")
        case "markdown":
            return to_markdown(
                _view(source, changes, command),
                title=title,
                chars=None if command.all else COMMENT_CHARS,
                hint=hint,
            )
        case _:
            file = io.StringIO()
            _print(Console(file=file, highlight=False, no_color=True), source, changes, command)
            return file.getvalue()

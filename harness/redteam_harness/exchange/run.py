"""Imported conversations as a run directory, which `redteam replay --level 2` and `redteam export` read.

It has what a launch leaves, but for what nobody saw: no change set, no verdicts. Its conversations count as
not judged. What it may be compared and replayed with is reckoned as a launch does, from the imported suite.
"""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redteam_forker import open_registry
from redteam_harness.evidence.journal import Journal
from redteam_harness.evidence.run import fingerprint, new_run
from redteam_harness.evidence.storage import json_text, write_json, write_text, writing
from redteam_harness.evidence.trace import now
from redteam_harness.launch.facts import conversation_facts, run_facts
from redteam_harness.launch.plan import plan_suite
from redteam_harness.launch.players import Access, ModelOptions, choose_players
from redteam_harness.launch.prepare import build_templates, check_rules, draw
from redteam_harness.launch.stage import Stage
from redteam_harness.report.rendering import write_reports
from redteam_harness.report.stored import Ended, read_report
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from redteam_forker import Registry, Server
    from redteam_harness.agents.agent import Opening
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.exchange.imported import Placed
    from redteam_harness.launch.mint import Mint
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.prepare import Built
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast

__all__ = ["Source", "cast_of", "write_run"]

_CAUSE = "imported"
_MESSAGE = "imported: nobody saw what it changed in a database, so nothing was judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an import comes from.

    Attributes:
        file: the file's name.
        format: what it was read as.
        digest: its SHA-256, in hexadecimal.
        replaced: how often personal data was replaced; None where no mapping was given.
    """

    file: str
    format: str
    digest: str
    replaced: int | None

    def to_json(self) -> dict[str, Any]:
        """As run.json has it."""
        return {
            "file": self.file,
            "format": self.format,
            "sha256": self.digest,
            "replaced": self.replaced,
        }


async def cast_of(server: Server, suite: Suite, progress: Progress, *, today: dt.date) -> Cast:
    """The cast of a suite on a day.

    Raises:
        UsageError: something in the suite cannot work.
        EnvironmentFault: the server failed.
    """
    async with _cast(server, suite, progress, today) as (_, cast):
        return cast


async def write_run(
    server: Server,
    suite: Suite,
    placed: Sequence[Placed],
    source: Source,
    progress: Progress,
    *,
    today: dt.date,
    out: Path,
) -> RunDirectory:
    """Write the run of an imported suite.

    Args:
        server: where its templates are built.
        suite: the imported suite, as it is on disk.
        placed: the conversations, in the order of its cases.
        source: where they come from.
        progress: what a person sees.
        today: the day that the data's dates are moved to.
        out: the folder of runs.

    Raises:
        UsageError: the suite cannot be planned.
        EvidenceFault: it cannot be written; nothing of it is left.
    """
    async with (
        _cast(server, suite, progress, today) as (built, drawn),
        choose_players(suite, Access(), ModelOptions(offline=True, parallel=1)) as players,
    ):
        await check_rules(server, suite, built.templates, drawn.columns)
        planned = plan_suite(suite, drawn)
        _check(planned, placed)
        run = new_run(out)
        try:
            stage = _stage(server, suite, built, players, progress, run)
            facts = run_facts(stage, planned, players, suite.spec.gates)
            write_json(run.facts, _imported(facts, source, placed))
            _write_conversations(run, suite, planned, placed)
            write_reports(run, read_report(run))
        except BaseException:
            shutil.rmtree(run.path, ignore_errors=True)
            raise
    return run


@asynccontextmanager
async def _cast(
    server: Server, suite: Suite, progress: Progress, today: dt.date
) -> AsyncIterator[tuple[Built, Cast]]:
    async with open_registry(server) as registry:
        built = await build_templates(server, registry, suite, progress, today=today)
        yield built, await draw(server, suite, built.templates)


class _NoAgent:
    """Stands where a launch has the agent: nobody is asked anything."""

    code = None
    tools = ()

    async def open(self, opening: Opening) -> NoReturn:
        raise InternalError(f"{opening.conversation} is imported, and is not held")


def _stage(
    server: Server, suite: Suite, built: Built, players: Players, progress: Progress, run: RunDirectory
) -> Stage:
    """What facts are written from. Nothing is held on it: it has no forks, no registry and signs nothing."""
    return Stage(
        suite=suite,
        server=server,
        templates=built.templates,
        seeds=built.seeds,
        agent=_NoAgent(),
        mint=cast("Mint", None),
        actor=players.actor_of(suite),
        calls=players.calls,
        waits_s=0.0,
        run=run,
        progress=progress,
        registry=cast("Registry", None),
        pools={},
        keep="none",
        attempt=1,
    )


def _check(planned: Sequence[Planned], placed: Sequence[Placed]) -> None:
    expected = [(one.name, one.persona.key) for one in placed]
    if [(one.case, one.persona.key) for one in planned] != expected:
        raise InternalError("the plan of the imported suite is not that of the recordings")


def _imported(facts: dict[str, Any], source: Source, placed: Sequence[Placed]) -> dict[str, Any]:
    parts = {name: value for name, value in facts["comparability"].items() if name != "key"}
    parts |= {"actor": "imported", "actor_prompt": None}
    count = len(placed)
    return {
        **facts,
        "notice": f"imported from {source.file} ({source.format}): {count} real "
        f"conversation{'' if count == 1 else 's'}, none judged",
        "comparability": {"key": fingerprint(parts), **parts},
        "agent": {**facts["agent"], "name": "imported", "model": None, "prompt": None},
        "imported": source.to_json(),
    }


def _write_conversations(
    run: RunDirectory, suite: Suite, planned: Sequence[Planned], placed: Sequence[Placed]
) -> None:
    with Journal(run.journal) as journal:
        journal.append("run_started", run=run.id, suite=suite.name, planned=len(planned))
        for plan, one in zip(planned, placed, strict=True):
            folder = run.conversation(plan.id)
            with writing(folder):
                folder.mkdir()
            about = conversation_facts(suite, plan, {})
            about |= {"attempt": 1, "imported": one.recording.name, "row_found_by": one.because}
            write_json(folder / "conversation.json", about)
            write_text(folder / "trace.jsonl", _trace(one))
            journal.append(
                "conversation_finished",
                conversation=plan.id,
                outcome="infra-fault",
                cause=_CAUSE,
                message=_MESSAGE,
                ending="ended",
                turns=one.recording.turns,
                seconds=0.0,
                kept=None,
                changes=None,
                usage=[],
            )
        ended = Ended(forks=0, seconds=0.0, interrupted=False, stopped=None, usage=())
        journal.append("run_ended", exit_code=0, finished=len(planned), **ended.to_json())


def _trace(placed: Placed) -> str:
    recording, at = placed.recording, now()
    # A message list has no times; then all of it is of the moment of the import, and only its order is known.
    events = [{"kind": event["kind"], "at": event.get("at", at), **event} for event in recording.events]
    end = {
        "kind": "end",
        "at": events[-1]["at"],
        "turn": recording.turns,
        "ending": "ended",
        "reason": "the recording ends here",
    }
    return "".join(json_text(event) + "\n" for event in (*events, end))

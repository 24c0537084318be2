"""One launch: from a checked suite to its report.

    run directory ─► server ─► agent process ─► templates ─► rules checked ─► cast ─► plan
    ─► conversations, at most `parallel` at a time, each journalled as it finishes ─► report files

Until the first conversation nothing is kept of a launch that fails; from then on nothing that finished
is lost.
"""

from __future__ import annotations

import shutil
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import anyio

from redteam_forker import DropFailed, open_registry
from redteam_forker.sweep import sweep
from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.run import new_run
from redteam_harness.evidence.storage import write_json, write_text, writing
from redteam_harness.launch.agents import open_agent
from redteam_harness.launch.drive import hold
from redteam_harness.launch.facts import conversation_facts, run_facts
from redteam_harness.launch.interrupt import Interrupt, Interrupted
from redteam_harness.launch.plan import plan_suite
from redteam_harness.launch.plants import find_plants
from redteam_harness.launch.prepare import build_templates, check_rules, draw, open_pools
from redteam_harness.launch.rehearse import rehearse
from redteam_harness.launch.services import issuing
from redteam_harness.launch.stage import Stage
from redteam_harness.report.data import report_data
from redteam_harness.report.junit import junit
from redteam_harness.report.summary import Finished, Summary, summarise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from redteam_forker import Registry, Server
    from redteam_harness.agents.agent import Agent
    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.launch.mint import Mint
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.players import Players
    from redteam_harness.launch.prepare import Built
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.resume import Resumed
    from redteam_harness.launch.services import ServiceOptions
    from redteam_harness.launch.stage import Keep
    from redteam_harness.launch.suite import Suite

__all__ = ["LaunchOptions", "Launched", "launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How to launch a suite.

    Attributes:
        parallel: how many conversations at once, at most.
        count: how many in all; None takes the suite's.
        server: opens the server.
        out: the directory that takes the run's directory.
        keep: which forks stay.
        environment: the launcher's environment; the agent process gets it without what looks like a secret.
        service: for an agent that is a deployed service.
        resume: the run that is gone on with, or None for a new one.
    """

    parallel: int
    count: int | None
    server: Callable[[], AbstractAsyncContextManager[Server]]
    out: Path
    keep: Keep
    environment: Mapping[str, str]
    service: ServiceOptions
    resume: Resumed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A launch that is over: what it found, and where the evidence lies.

    Attributes:
        summary: what it found.
        run: the evidence.
        undropped: names of forks that could not be dropped.
        reached: other databases that forks' roles could have connected to, on a server that is not ours.
    """

    summary: Summary
    run: RunDirectory
    undropped: tuple[str, ...]
    reached: tuple[str, ...]


async def launch(
    suite: Suite, options: LaunchOptions, players: Players, progress: Progress, interrupt: Interrupt
) -> Launched:
    """Launch a suite and write its evidence and reports.

    Raises:
        UsageError: something in the suite or the options cannot work; no fork was made.
        EnvironmentFault: the server or the evidence directory failed.
        Interrupted: a person stopped it before the first conversation.
    """
    run = options.resume.run if options.resume else new_run(options.out)
    launched: Launched | None = None
    undropped: list[str] = []
    try:
        with interrupt.scope() as prepared:
            async with options.server() as server:
                progress.say(f"server  {server.facts.kind} PostgreSQL {server.facts.version}")
                log = run.path / "agent.log"
                async with (
                    issuing(suite, run.id, server.facts.host, options.service) as issued,
                    open_agent(suite, players, issued, options.environment, log=log) as agent,
                    _staged(server, agent, issued.mint, suite, options, players, progress, run) as (
                        stage,
                        planned,
                    ),
                ):
                    prepared()
                    launched = await _hold_all(stage, planned, options, players, interrupt)
    except* DropFailed as failures:
        if launched is None:
            raise
        # A warm fork that stays takes no report with it; the next sweep tries again.
        undropped = [str(failure) for failure in failures.exceptions]
    finally:
        if not run.journal.exists():
            shutil.rmtree(run.path, ignore_errors=True)
    if launched is None:
        raise Interrupted("interrupted before the first conversation; nothing was kept")
    return replace(launched, undropped=(*launched.undropped, *undropped))


async def _prepare(
    server: Server, registry: Registry, suite: Suite, options: LaunchOptions, progress: Progress
) -> tuple[Built, tuple[Planned, ...]]:
    """Templates, cast and plan; whatever is wrong in the suite is found here, before a fork exists."""
    today = datetime.now().astimezone().date()
    built = await build_templates(server, registry, suite, progress, today=today)
    cast = await draw(server, suite, built.templates)
    await check_rules(server, suite, built.templates, cast.columns)
    count = options.count or (options.resume.planned if options.resume else None)
    return built, plan_suite(suite, cast, count=count)


@asynccontextmanager
async def _staged(
    server: Server,
    agent: Agent,
    mint: Mint,
    suite: Suite,
    options: LaunchOptions,
    players: Players,
    progress: Progress,
    run: RunDirectory,
) -> AsyncIterator[tuple[Stage, tuple[Planned, ...]]]:
    """Everything that conversations share, for as long as they are held."""
    async with open_registry(server) as registry:
        swept = await sweep(server, registry=registry)
        if swept.dropped:
            progress.say(f"swept  what launchers that are gone left: {len(swept.dropped)}")
        for failure in swept.failed:
            progress.say(f"  not swept: {failure.reason}")
        built, planned = await _prepare(server, registry, suite, options, progress)
        async with open_pools(server, registry, built, parallel=min(options.parallel, len(planned))) as pools:
            stage = Stage(
                suite=suite,
                server=server,
                templates=built.templates,
                seeds=built.seeds,
                agent=agent,
                mint=mint,
                actor=players.actor_of(suite),
                calls=players.calls,
                waits_s=players.waits_s,
                run=run,
                progress=progress,
                registry=registry,
                pools=pools,
                keep=options.keep,
                attempt=options.resume.attempt if options.resume else 1,
                planted=await find_plants(server, suite, built.templates, planned),
            )
            await rehearse(stage)
            facts = run_facts(stage, planned, players)
            if options.resume is None:
                write_json(run.facts, facts)
            else:
                options.resume.check(facts)
            yield stage, planned


async def _hold_all(
    stage: Stage,
    planned: tuple[Planned, ...],
    options: LaunchOptions,
    players: Players,
    interrupt: Interrupt,
) -> Launched:
    started = time.monotonic()
    with _journal(stage, planned, options) as (journal, finished):
        held = {one.id for one in finished}
        left = [one for one in planned if one.id not in held]
        for one in finished:
            stage.progress.kept(one)
        with stage.progress.showing(len(planned)), interrupt.scope():
            async with anyio.create_task_group() as workers:
                queue = iter(left)
                for _ in range(min(options.parallel, len(left))):
                    workers.start_soon(_work, queue, stage, journal, finished)
        held = {one.id for one in finished}
        not_held = [one.id for one in planned if one.id not in held]
        summary = summarise(
            finished,
            notice=players.notice,
            suite=stage.suite.name,
            run=stage.run.id,
            planned=len(planned),
            forks=stage.progress.forks_made,
            interrupted=interrupt.requested,
            seconds=time.monotonic() - started,
            not_held=not_held,
            stopped=stage.calls.stopped if not_held else None,
            usage=stage.calls.ledger.all,
            launches=options.resume.attempt if options.resume else 1,
        )
        write_json(stage.run.path / "report.json", report_data(summary))
        write_text(stage.run.path / "junit.xml", junit(summary))
        journal.append(
            "run_ended", exit_code=summary.exit_code, finished=len(finished), stopped=summary.stopped
        )
    entries = read_journal(stage.run.journal)
    assert sum(entry["kind"] == "conversation_finished" for entry in entries) == len(finished)
    return Launched(
        summary=summary,
        run=stage.run,
        undropped=tuple(stage.undropped),
        reached=tuple(sorted(stage.reached)),
    )


@contextmanager
def _journal(
    stage: Stage, planned: tuple[Planned, ...], options: LaunchOptions
) -> Iterator[tuple[Journal, list[Finished]]]:
    """The run's journal, begun or gone on with, and what is finished already."""
    resumed = options.resume
    if resumed is None:
        with Journal(stage.run.journal) as journal:
            journal.append("run_started", run=stage.run.id, suite=stage.suite.name, planned=len(planned))
            yield journal, []
        return
    finished = resumed.restore(planned)
    cut_off = resumed.set_aside(planned)
    resumed.book(stage.calls.ledger)
    resumed.journal.append(
        "run_resumed",
        launch=resumed.attempt,
        finished=len(finished),
        cut_off=cut_off,
        weeks_moved=sorted({template.weeks for template in stage.templates.values()}),
    )
    yield resumed.journal, finished


async def _work(queue: Iterator[Planned], stage: Stage, journal: Journal, finished: list[Finished]) -> None:
    """Hold one conversation after the other until the queue, which all workers share, is empty.

    What is not to be started any more, because a budget is spent or a model cannot be had, stays in it.
    """
    while stage.calls.stopped is None:
        planned = next(queue, None)
        if planned is None:
            return
        folder = stage.run.conversation(planned.id)
        with writing(folder):
            folder.mkdir()
        facts = conversation_facts(stage.suite, planned, stage.planted.get(planned.id, {}))
        facts["attempt"] = stage.attempt
        write_json(folder / "conversation.json", facts)
        stage.progress.started(planned)
        try:
            one = await hold(planned, stage)
        except BaseException:
            stage.progress.abandoned(planned.id)
            raise
        journal.append(
            "conversation_finished",
            conversation=one.id,
            outcome=one.outcome,
            cause=one.cause,
            message=one.message,
            ending=one.ending,
            turns=one.turns,
            seconds=round(one.seconds, 3),
            kept=one.kept,
            changes=one.changes["hash"] if one.changes else None,
            usage=[spent.to_json() for spent in stage.calls.ledger.of(one.id)],
        )
        finished.append(one)
        stage.progress.finished(one)

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
from redteam_harness.evidence.journal import Journal
from redteam_harness.evidence.run import new_run
from redteam_harness.evidence.storage import write_json, writing
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
from redteam_harness.launch.walls import tried_walls
from redteam_harness.registers.attestation import agent_kind
from redteam_harness.registers.degraded import require_isolation
from redteam_harness.registers.mocks import load_fidelity
from redteam_harness.report.rendering import write_reports
from redteam_harness.report.stored import Ended, read_report

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
    from redteam_harness.launch.recorded import Replay
    from redteam_harness.launch.resume import Resumed
    from redteam_harness.launch.services import ServiceOptions
    from redteam_harness.launch.stage import Keep
    from redteam_harness.launch.suite import Suite
    from redteam_harness.registers.degraded import IsolationLevel
    from redteam_harness.report.summary import Finished, Summary
    from redteam_harness.report.thresholds import GatesSpec

__all__ = ["LaunchOptions", "Launched", "launch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How to launch a suite.

    Attributes:
        parallel: how many conversations at once, at most.
        count: how many different ones; None takes the suite's.
        repeat: how often each of them; None takes the suite's.
        server: opens the server.
        out: the directory that takes the run's directory.
        keep: which forks stay.
        environment: the launcher's environment; the agent process gets it without what looks like a secret.
        service: for an agent that is a deployed service.
        gates: what the run must reach.
        isolation: what every conversation's isolation must have; None: nothing is demanded.
        resume: the run that is gone on with, or None for a new one.
        replay: what is replayed, or None: nothing is recorded.
    """

    parallel: int
    count: int | None
    repeat: int | None
    server: Callable[[], AbstractAsyncContextManager[Server]]
    out: Path
    keep: Keep
    environment: Mapping[str, str]
    service: ServiceOptions
    gates: GatesSpec
    isolation: IsolationLevel | None = None
    resume: Resumed | None = None
    replay: Replay | None = None


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
                require_isolation(options.isolation, server.facts, agent_kind(suite.spec.agent))
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
    if options.replay is not None:
        today = options.replay.today(suite.spec.seed.anchor) or today
    built = await build_templates(server, registry, suite, progress, today=today)
    cast = await draw(server, suite, built.templates)
    await check_rules(server, suite, built.templates, cast.columns)
    count = options.count or (options.resume.count if options.resume else None)
    repeat = options.repeat or (options.resume.repeat if options.resume else None)
    return built, plan_suite(suite, cast, count=count, repeat=repeat)


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
    fidelity = load_fidelity(suite.folder, suite.rules)
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
                judge=players.judge,
                waits_s=players.waits_s,
                run=run,
                progress=progress,
                registry=registry,
                pools=pools,
                keep=options.keep,
                attempt=options.resume.attempt if options.resume else 1,
                replay=options.replay,
                planted=await find_plants(server, suite, built.templates, planned),
                isolation=options.isolation,
                walls=await tried_walls(server, built, pools),
                fidelity=fidelity,
            )
            await rehearse(stage)
            facts = run_facts(stage, planned, players, options.gates)
            if options.replay is not None:
                facts = options.replay.facts(facts)
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
        ended = Ended(
            forks=stage.progress.forks_made,
            seconds=time.monotonic() - started,
            interrupted=interrupt.requested,
            stopped=stage.calls.stopped if len(finished) < len(planned) else None,
            usage=stage.calls.ledger.all,
        )
        # Read back from the evidence, so that what is reported is what was kept.
        summary = read_report(stage.run, ended)
        assert {one.id for one in summary.finished} == {one.id for one in finished}
        journal.append("run_ended", exit_code=summary.exit_code, finished=len(finished), **ended.to_json())
        write_reports(stage.run, summary)
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
        cut_off=[name for name in cut_off if name not in resumed.retried],
        retried=list(resumed.retried),
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
            attestation=one.attestation,
        )
        finished.append(one)
        stage.progress.finished(one)

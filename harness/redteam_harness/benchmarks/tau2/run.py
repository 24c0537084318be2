"""Every task on a fork of its own: its gold actions through the world's tools, and the hash of what is left.

Each alternative to the gold actions has a fork of its own as well.

The tools run where an agent's tools run: in an agent process, which trusts a signed context and reaches the
fork it names by the SDK. What is tested is therefore the whole path of a tool call, without a model.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.to_thread

from redteam_forker import (
    DropFailed,
    build_template,
    close_fork,
    collect_changes,
    connect_fork_admin,
    open_registry,
    read_seed,
)
from redteam_harness.agents.agent import AgentFault, AgentLost, Opening
from redteam_harness.agents.environment import agent_environment
from redteam_harness.agents.host import host_agent
from redteam_harness.agents.process import AgentCommand
from redteam_harness.benchmarks.tau2.difference import beside_expected
from redteam_harness.benchmarks.tau2.outcome import Attempt, Benched, Refused, TaskRun, with_standings
from redteam_harness.benchmarks.tau2.world import ROLE, SEED_FILES, TOOLS
from redteam_harness.launch.mint import Mint
from redteam_harness.launch.prepare import Built, open_pools
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from redteam_forker import Fork, Pool, Registry, Server, Template
    from redteam_harness.agents.host import ProcessAgent
    from redteam_harness.benchmarks.tau2.action import Action
    from redteam_harness.benchmarks.tau2.data import Benchmark, Task
    from redteam_harness.benchmarks.tau2.difference import Beside
    from redteam_harness.benchmarks.tau2.world import State, World

__all__ = ["BenchOptions", "run_benchmark"]

_LIFETIME_S = 900.0
_CHECKOUT_S = 300.0
_CALL_S = 60.0
_NAME = "tau2-retail"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """How to run it.

    Attributes:
        parallel: how many tasks at once, at most.
        server: opens the server.
        environment: the caller's; the tools' process gets it without what looks like a secret.
    """

    parallel: int
    server: Callable[[], AbstractAsyncContextManager[Server]]
    environment: Mapping[str, str] = field(repr=False)


async def run_benchmark(
    benchmark: Benchmark, world: World, options: BenchOptions, said: Callable[[str], None]
) -> Benched:
    """Run every task's gold actions on a fork of its own, and each of its alternatives.

    Args:
        benchmark: whose tasks.
        world: schema, loader, tools and export.
        options: how.
        said: is told what is going on, line by line.

    Raises:
        UsageError: the data does not load, does not come back as it went in, or so many forks do not fit.
        EnvironmentFault: the server failed.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redteam-tau2-")))
        await anyio.to_thread.run_sync(world.write_seed, benchmark.db, folder)
        server = await stack.enter_async_context(options.server())
        version = f"{server.facts.kind} PostgreSQL {server.facts.version}"
        said(f"server  {version}")
        registry = await stack.enter_async_context(open_registry(server))
        seed = await anyio.to_thread.run_sync(partial(read_seed, folder, SEED_FILES, anchor=None, moves=()))
        today = datetime.now().astimezone().date()
        template = await build_template(server, seed, role=ROLE, today=today, registry=registry)
        await _check_untouched(server, template, benchmark, world)
        origin = "kept from before" if template.from_cache else f"built in {template.load_s:.1f} s"
        said(f"template  {template.tables} tables, {template.size_bytes / 2**20:.0f} MB, {origin}")
        said(f"untouched  the export has the expected hash {benchmark.initial_sha256[:12]}")
        mint = Mint(tenant=_NAME, run="bench", host=server.facts.host)
        agent = await stack.enter_async_context(
            host_agent(_tools_command(world, options, folder / "tools.log"), mint.trust)
        )
        jobs = [
            _Job(task, number) for task in benchmark.tasks for number in range(len(task.alternatives) + 1)
        ]
        parallel = max(1, min(options.parallel, len(jobs)))
        built = Built({_NAME: template}, (seed.hash,))
        pools = await stack.enter_async_context(open_pools(server, registry, built, parallel=parallel))
        stage = _Stage(
            server=server,
            registry=registry,
            pool=pools[_NAME],
            agent=agent,
            mint=mint,
            world=world,
            benchmark=benchmark,
        )
        began = time.monotonic()
        queue = iter(jobs)
        async with anyio.create_task_group() as workers:
            for _ in range(parallel):
                workers.start_soon(_work, stage, queue)
        seconds = time.monotonic() - began
    return Benched(
        server=version,
        template=template.name,
        load_s=template.load_s,
        runs=[_run_of(stage, task) for task in benchmark.tasks],
        seconds=seconds,
        undropped=tuple(stage.undropped),
    )


class _Job(NamedTuple):
    """The gold actions of a task (0), or one of its alternatives, from 1."""

    task: Task
    number: int

    @property
    def key(self) -> tuple[str, int]:
        return self.task.id, self.number

    @property
    def name(self) -> str:
        return self.task.id if self.number == 0 else f"{self.task.id}-alternative-{self.number}"

    @property
    def actions(self) -> Sequence[Action]:
        return self.task.actions if self.number == 0 else self.task.alternatives[self.number - 1].actions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Where the jobs are done, and what came of them.

    Attributes:
        comparing: one comparison at a time. Each takes tens of megabytes and no more than one processor.
    """

    server: Server
    registry: Registry
    pool: Pool
    agent: ProcessAgent
    mint: Mint
    world: World
    benchmark: Benchmark
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    beside: dict[str, Beside] = field(default_factory=dict)
    undropped: list[str] = field(default_factory=list)
    comparing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))


def _run_of(stage: _Stage, task: Task) -> TaskRun:
    attempts = [stage.attempts[task.id, number] for number in range(len(task.alternatives) + 1)]
    return TaskRun(
        task=task,
        gold=attempts[0],
        beside=stage.beside.get(task.id),
        alternatives=with_standings(task, attempts[1:], initial_sha256=stage.benchmark.initial_sha256),
    )


async def _check_untouched(server: Server, template: Template, benchmark: Benchmark, world: World) -> None:
    """The loader's own test: what was loaded comes back as it was."""
    connection = await server.connect(template.baseline)
    try:
        found = await world.state_sha256(connection)
    finally:
        await connection.close()
    if found != benchmark.initial_sha256:
        raise UsageError(
            f"{benchmark.db} does not come back as expected: the untouched export hashes to {found}, and "
            f"expected.json says {benchmark.initial_sha256}; the files are not of one version, or the world "
            "does not know all of their shape"
        )


def _tools_command(world: World, options: BenchOptions, log: Path) -> AgentCommand:
    return AgentCommand(
        interpreter=sys.executable,
        folder=world.folder,
        agent=None,
        tools=TOOLS,
        env={**agent_environment(options.environment, ()), "PYTHONUNBUFFERED": "1"},
        log=log,
        stdout="fault",
        turn_s=_CALL_S,
    )


async def _work(stage: _Stage, queue: Iterator[_Job]) -> None:
    for job in queue:
        began = time.monotonic()
        attempt, state = await _attempt(stage, job)
        stage.attempts[job.key] = replace(attempt, seconds=time.monotonic() - began)
        # The document is read only where it is not as expected, and the fork is gone by then.
        if job.number == 0 and state is not None and state.sha256 != job.task.expected.end_state_sha256:
            stage.beside[job.task.id] = await anyio.to_thread.run_sync(
                beside_expected, stage.benchmark, job.task, state.text, limiter=stage.comparing
            )


async def _attempt(stage: _Stage, job: _Job) -> tuple[Attempt, State | None]:
    """One job on its fork, which is dropped; a fault of ours is this job's and stops no other."""
    try:
        fork = await stage.pool.checkout(
            lifetime_s=_LIFETIME_S, deadline_s=_CHECKOUT_S, label=f"bench/{job.name}"
        )
    except EnvironmentFault as fault:
        return Attempt(fault=str(fault)), None
    try:
        refused = await _act(stage, job, fork)
        await close_fork(stage.server, fork, registry=stage.registry)
        changes = await collect_changes(
            stage.server,
            baseline=stage.pool.template.baseline,
            fork=fork.database,
            watermark=fork.watermark,
        )
        connection = await connect_fork_admin(stage.server, fork)
        try:
            state = await stage.world.state(connection)
        finally:
            await connection.close()
        return Attempt(sha256=state.sha256, refused=refused, changes=changes), state
    except (AgentFault, AgentLost, EnvironmentFault) as fault:
        return Attempt(fault=str(fault)), None
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await stage.pool.drop(fork)
            except (DropFailed, EnvironmentFault):
                stage.undropped.append(fork.name)


async def _act(stage: _Stage, job: _Job, fork: Fork) -> list[Refused]:
    """Make a job's calls in order; one that is refused changes nothing, and the next is made."""

    def ignore(_: Mapping[str, Any]) -> None:
        """Nobody reads the events of a task."""

    token = stage.mint.token(f"task-{job.name}", fork, lifetime_s=_LIFETIME_S)
    session = await stage.agent.open(
        Opening(conversation=f"task-{job.name}", token=token, fork=fork, sink=ignore)
    )
    refused: list[Refused] = []
    try:
        if session.database != fork.database:
            raise EnvironmentFault(f"the tools see database {session.database!r}, not {fork.database!r}")
        for index, action in enumerate(job.actions):
            answer = await session.call(1, f"{job.name}-{index}", action.name, action.arguments)
            if answer["op"] == "error":
                refused.append(
                    Refused(
                        index=index,
                        tool=action.name,
                        type=str(answer["type"]),
                        message=str(answer["message"]),
                    )
                )
    finally:
        await session.close()
    return refused

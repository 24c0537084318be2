"""Every task on a fork of its own: its gold actions through the world's tools, and the hash of what is left.

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
from typing import TYPE_CHECKING, Any

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
from redteam_harness.benchmarks.tau2.world import ROLE, SEED_FILES, TOOLS
from redteam_harness.launch.mint import Mint
from redteam_harness.launch.prepare import Built, open_pools
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from redteam_forker import ChangeSet, Fork, Pool, Registry, Server, Template
    from redteam_harness.agents.host import ProcessAgent
    from redteam_harness.benchmarks.tau2.data import Benchmark, Task
    from redteam_harness.benchmarks.tau2.world import World

__all__ = ["BenchOptions", "Benched", "Refused", "TaskRun", "run_benchmark"]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A gold action that a tool refused: its place among the actions, from 0, and the error."""

    index: int
    tool: str
    type: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """What became of one task.

    Attributes:
        task: which.
        sha256: of the end state; None where a fault of ours prevented one.
        refused: the actions that a tool refused.
        changes: what the actions changed.
        seconds: from the checkout of its fork to its drop.
        fault: what of ours failed, or None.
    """

    task: Task
    sha256: str | None = None
    refused: Sequence[Refused] = ()
    changes: ChangeSet | None = None
    seconds: float = 0.0
    fault: str | None = None

    @property
    def is_match(self) -> bool:
        """Whether the end state has the expected hash, and the expected actions were refused and no other."""
        expected = self.task.expected
        return self.sha256 == expected.end_state_sha256 and [one.index for one in self.refused] == sorted(
            expected.failing_action_indexes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Benched:
    """The whole run.

    Attributes:
        server: kind and version.
        template: the template that the forks were made of.
        load_s: how long making it took, in seconds; of the first time, if it was found.
        runs: in the order of the tasks.
        seconds: from the first checkout to the last drop.
        undropped: names of forks that could not be dropped.
    """

    server: str
    template: str
    load_s: float
    runs: Sequence[TaskRun]
    seconds: float
    undropped: Sequence[str] = ()

    @property
    def matches(self) -> int:
        """How many tasks match."""
        return sum(run.is_match for run in self.runs)

    @property
    def forks_per_second(self) -> float:
        """Forks made, used, compared, exported and dropped."""
        return len(self.runs) / self.seconds if self.seconds else 0.0


async def run_benchmark(
    benchmark: Benchmark, world: World, options: BenchOptions, said: Callable[[str], None]
) -> Benched:
    """Run every task's gold actions on a fork of its own.

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
        parallel = max(1, min(options.parallel, len(benchmark.tasks)))
        built = Built({_NAME: template}, (seed.hash,))
        pools = await stack.enter_async_context(open_pools(server, registry, built, parallel=parallel))
        stage = _Stage(
            server=server,
            registry=registry,
            pool=pools[_NAME],
            agent=agent,
            mint=mint,
            world=world,
            said=said,
        )
        began = time.monotonic()
        runs: dict[str, TaskRun] = {}
        queue = iter(benchmark.tasks)
        async with anyio.create_task_group() as workers:
            for _ in range(parallel):
                workers.start_soon(_work, stage, queue, runs)
        seconds = time.monotonic() - began
    return Benched(
        server=version,
        template=template.name,
        load_s=template.load_s,
        runs=[runs[task.id] for task in benchmark.tasks],
        seconds=seconds,
        undropped=tuple(stage.undropped),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    server: Server
    registry: Registry
    pool: Pool
    agent: ProcessAgent
    mint: Mint
    world: World
    said: Callable[[str], None]
    undropped: list[str] = field(default_factory=list)


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


async def _work(stage: _Stage, queue: Iterator[Task], runs: dict[str, TaskRun]) -> None:
    for task in queue:
        began = time.monotonic()
        run = await _run_task(stage, task)
        runs[task.id] = replace(run, seconds=time.monotonic() - began)


async def _run_task(stage: _Stage, task: Task) -> TaskRun:
    """One task on its fork, which is dropped; a fault of ours is this task's and stops no other."""
    try:
        fork = await stage.pool.checkout(
            lifetime_s=_LIFETIME_S, deadline_s=_CHECKOUT_S, label=f"bench/{task.id}"
        )
    except EnvironmentFault as fault:
        return TaskRun(task=task, fault=str(fault))
    try:
        refused = await _act(stage, task, fork)
        await close_fork(stage.server, fork, registry=stage.registry)
        changes = await collect_changes(
            stage.server,
            baseline=stage.pool.template.baseline,
            fork=fork.database,
            watermark=fork.watermark,
        )
        connection = await connect_fork_admin(stage.server, fork)
        try:
            sha256 = await stage.world.state_sha256(connection)
        finally:
            await connection.close()
        return TaskRun(task=task, sha256=sha256, refused=refused, changes=changes)
    except (AgentFault, AgentLost, EnvironmentFault) as fault:
        return TaskRun(task=task, fault=str(fault))
    finally:
        with anyio.CancelScope(shield=True):
            try:
                await stage.pool.drop(fork)
            except (DropFailed, EnvironmentFault):
                stage.undropped.append(fork.name)


async def _act(stage: _Stage, task: Task, fork: Fork) -> list[Refused]:
    """Make a task's gold calls in order; one that is refused changes nothing, and the next is made."""

    def ignore(_: Mapping[str, Any]) -> None:
        """Nobody reads the events of a task."""

    token = stage.mint.token(f"task-{task.id}", fork, lifetime_s=_LIFETIME_S)
    session = await stage.agent.open(
        Opening(conversation=f"task-{task.id}", token=token, fork=fork, sink=ignore)
    )
    refused: list[Refused] = []
    try:
        if session.database != fork.database:
            raise EnvironmentFault(f"the tools see database {session.database!r}, not {fork.database!r}")
        for index, action in enumerate(task.actions):
            answer = await session.call(1, f"{task.id}-{index}", action.name, action.arguments)
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

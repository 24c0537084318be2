"""Launchers in processes of their own, to be killed: each is forked from one that has imported everything.

    launchers.start("live", 20) ─► a process that opens a registry and holds 20 forks until it is killed
    launchers.run("sweep", die_after="claimed") ─► how a process ended that was to kill itself at that point

`die_before` counts statements: the process kills itself before its n-th one on any session.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import asyncpg

from redteam_forker.fork import close_fork, create_fork, create_warm, drop_fork
from redteam_forker.pool import open_pool
from redteam_forker.registry import open_registry
from redteam_forker.seeds import Seed, SeedFile
from redteam_forker.servers import open_server
from redteam_forker.sweep import sweep
from redteam_forker.template import Template, build_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

__all__ = ["Launcher", "Launchers", "launchers_on"]

_TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """A process that said that it is ready.

    Attributes:
        pid: its.
        said: what it made: names of forks.
    """

    pid: int
    said: list[str]

    def kill(self) -> None:
        """As the kernel does it when memory is short."""
        os.kill(self.pid, signal.SIGKILL)


class Launchers:
    """Starts them. One request at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._turn = anyio.Lock()

    async def start(self, what: str, *arguments: Any) -> Launcher:
        """Start a process, and wait until it says what it has made."""
        answer = await self._ask({"do": "start", "what": what, "arguments": arguments})
        return Launcher(pid=answer["pid"], said=answer["said"])

    async def run(
        self, what: str, *arguments: Any, die_before: int | None = None, die_after: str | None = None
    ) -> int:
        """Run a process to its end: 0, or the signal that ended it."""
        request = {"do": "run", "what": what, "arguments": arguments}
        answer = await self._ask({**request, "die_before": die_before, "die_after": die_after})
        return int(answer["status"])

    async def wait(self, launcher: Launcher) -> int:
        """Bury a process that was killed: the signal that ended it."""
        return int((await self._ask({"do": "wait", "pid": launcher.pid}))["status"])

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        async with self._turn:
            line = await anyio.to_thread.run_sync(self._exchange, json.dumps(request))
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

    def _exchange(self, request: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


@contextlib.asynccontextmanager
async def launchers_on(dsn: str) -> AsyncIterator[Launchers]:
    """Launchers of the server with this DSN; what still runs in the end is killed."""
    process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
        [sys.executable, "-m", "support.launchers", dsn],
        cwd=_TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Launchers(process)
    finally:
        await anyio.to_thread.run_sync(process.communicate)


# --- in the process from which launchers are forked -------------------------------------------------------


def _parent(dsn: str) -> None:
    running: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        if request["do"] == "wait":
            answer = {"status": _status(request["pid"])}
            running.discard(request["pid"])
        else:
            pid, pipe = _child(dsn, request)
            said = pipe.readline()
            if request["do"] == "run":
                said += pipe.read()
                answer = {"status": _status(pid)}
                if said:
                    answer["error"] = said
            elif said:
                running.add(pid)
                answer = {"pid": pid, "said": json.loads(said)}
            else:
                answer = {"error": f"the process ended before it was ready: {_status(pid)}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGCONT)


def _status(pid: int) -> int:
    return -os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _child(dsn: str, request: dict[str, Any]) -> tuple[int, Any]:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, os.fdopen(reader)
    os.close(reader)
    os.close(0)
    if request.get("die_before") is not None:
        _die_before(request["die_before"])
    options = {"die_after": request.get("die_after")}
    anyio.run(functools.partial(_launch, dsn, request["what"], request["arguments"], writer, **options))
    os._exit(0)


def _die_before(count: int) -> None:
    """Kill this process before its `count`-th statement."""
    left = count

    def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return await method(*args, **kwargs)

        return run

    for name in ("execute", "fetch", "fetchrow", "fetchval"):
        setattr(asyncpg.Connection, name, counted(getattr(asyncpg.Connection, name)))


async def _launch(dsn: str, what: str, arguments: list[Any], writer: int, *, die_after: str | None) -> None:
    def say(names: list[str]) -> None:
        os.write(writer, (json.dumps(names) + "\n").encode())

    async with open_server(dsn) as server:
        if what == "sweep":
            await sweep(server, step=functools.partial(_die_at, die_after))
            return
        async with open_registry(server) as registry:
            if what == "build":
                seed = Seed(
                    files=(SeedFile(name="s.sql", data=arguments[0].encode()),), anchor=None, moves=()
                )
                await build_template(server, seed, role=None, today=date(2027, 3, 4), registry=registry)
                return
            template = Template.from_json(arguments[0])
            if what == "live":
                forks = [
                    await create_fork(server, template, lifetime_s=600, registry=registry, label=f"{number}")
                    for number in range(arguments[1])
                ]
                say([fork.name for fork in forks])
                await anyio.sleep_forever()
            elif what == "pool":
                async with open_pool(server, template, registry, low=1, high=1) as pool:
                    fork = await pool.checkout(lifetime_s=600, deadline_s=30)
                    await close_fork(server, fork, registry=registry)
                    await pool.drop(fork)
            elif what == "warm":
                say([(await create_warm(server, template, registry=registry)).name])
                await anyio.sleep_forever()
            elif what == "creating":
                say([])
                await create_fork(server, template, lifetime_s=600, registry=registry)
            elif what == "one":
                fork = await create_fork(server, template, lifetime_s=600, registry=registry)
                await drop_fork(server, fork, registry=registry)


def _die_at(last: str | None, step: str) -> None:
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _parent(sys.argv[1])

"""What the SDK costs in production: `db.connection()` beside the bare pool, and what importing it takes.

    .venv/bin/python tests/benchmarks/sdk.py [--rounds 60] [--uses 2000]

Rounds of the two are alternated, so that what else the machine does falls on both. Times are processor time
of this process. Where it says "no reset", a connection that is given back is not reset: that is a question to
the server, and most of the time. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import asyncpg
from support.sdk import fork

from redteam_forker.servers import open_server
from redteam_sdk import db, tool
from redteam_sdk.middleware.asgi import RedteamMiddleware as Asgi
from redteam_sdk.middleware.wsgi import RedteamMiddleware as Wsgi

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Uses = Callable[[int], Awaitable[None]]

HEADERS = [(f"x-header-{n}".encode(), b"value") for n in range(12)]
SCOPE: dict[str, Any] = {"type": "http", "headers": HEADERS}
ENVIRON = {f"HTTP_X_{n}": "value" for n in range(12)}


async def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="What the SDK costs in production.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--uses", type=int, default=2000, help="uses in one round")
    chosen = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"Python {sys.version.split()[0]}, asyncpg {asyncpg.__version__}")
    print(f"{chosen.rounds} rounds of {chosen.uses} uses, alternated; microseconds of processor time a use\n")
    print("| in production | bare | with the SDK | difference: median (quartiles) |")
    print("|---|---|---|---|")
    async with open_server() as server, fork(server) as place:
        async with asyncpg.create_pool(place.dsn(), min_size=1, max_size=1, reset=no_reset) as pool:
            db.configure(pool=pool)
            pair = checkouts(pool.acquire), checkouts(db.connection)
            await show("`db.connection()`, given a pool, no reset", *pair, chosen)
        db.configure(place.dsn())
        ours = await db.pool()
        pair = checkouts(ours.acquire), checkouts(db.connection)
        ours._reset = no_reset  # as if it had been made so
        await show("`db.connection()`, given a DSN, no reset", *pair, chosen)
        ours._reset = None
        await show("`db.connection()`, given a DSN", *pair, chosen)
        await show("`db.fetchval('SELECT 1')`", fetches(ours.fetchval), fetches(db.fetchval), chosen)
        await db.close()
    await show("`@tool` on an `async def`", awaits(work), awaits(tool(work)), chosen)
    await show("`@tool` on a `def`", calls(plain), calls(tool(plain)), chosen)
    await show("ASGI middleware, 12 headers", requests(answer), requests(Asgi(answer)), chosen)
    await show("WSGI middleware, 12 headers", wsgi_requests(reply), wsgi_requests(Wsgi(reply)), chosen)
    print("\nImporting, milliseconds of processor time, median (least to most) of 15 new processes:")
    print(importing())


async def show(what: str, bare: Uses, ours: Uses, chosen: argparse.Namespace) -> None:
    """Measure two in turn, and print their row."""
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    for number in range(chosen.rounds + 1):
        # Each goes first in every other round.
        order = [("bare", bare), ("ours", ours)][:: 1 if number % 2 else -1]
        for name, run in order:
            begin = time.process_time()
            await run(chosen.uses)
            times[name].append((time.process_time() - begin) / chosen.uses * 1e6)
    rounds = [ours - bare for bare, ours in zip(times["bare"][1:], times["ours"][1:], strict=True)]
    low, middle, high = statistics.quantiles(rounds, n=4)
    medians = [statistics.median(times[name][1:]) for name in ("bare", "ours")]
    print(f"| {what} | {medians[0]:.2f} | {medians[1]:.2f} | **{middle:.2f}** ({low:.2f} to {high:.2f}) |")


def checkouts(take: Callable[[], Any]) -> Uses:
    async def run(times: int) -> None:
        for _ in range(times):
            async with take():
                pass

    return run


def fetches(ask: Callable[[str], Awaitable[Any]]) -> Uses:
    async def run(times: int) -> None:
        for _ in range(times):
            await ask("SELECT 1")

    return run


def awaits(fn: Callable[[], Awaitable[None]]) -> Uses:
    async def run(times: int) -> None:
        for _ in range(times):
            await fn()

    return run


def calls(fn: Callable[[], None]) -> Uses:
    async def run(times: int) -> None:
        for _ in range(times):
            fn()

    return run


def requests(app: Callable[..., Awaitable[None]]) -> Uses:
    async def run(times: int) -> None:
        for _ in range(times):
            await app(SCOPE, None, None)

    return run


def wsgi_requests(app: Callable[..., Any]) -> Uses:
    async def run(times: int) -> None:
        for _ in range(times):
            app(ENVIRON, None)

    return run


async def no_reset(connection: Any) -> None:
    """In the place of the statements that asyncpg runs on a connection that is given back."""


async def work() -> None:
    """A tool that does nothing."""


def plain() -> None:
    """The same, plain."""


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An application that does nothing."""


def reply(environ: Any, start_response: Any) -> list[bytes]:
    """The same, of WSGI."""
    return []


_IMPORT = """
import json, time
a = time.process_time(); import asyncpg
b = time.process_time(); import redteam_sdk
c = time.process_time(); from redteam_sdk.middleware import asgi, wsgi
d = time.process_time(); import jwt, jwt.algorithms
print(json.dumps([(b - a) * 1e3, (c - b) * 1e3, (d - c) * 1e3, (time.process_time() - d) * 1e3]))
"""


def importing() -> str:
    """What asyncpg takes, and the SDK beside it, by new processes of this interpreter."""
    runs = []
    for _ in range(15):
        done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    names = (
        "asyncpg",
        "redteam_sdk after it",
        "middlewares",
        "PyJWT and cryptography, at the first token only",
    )
    return "\n".join(
        f"- {name}: {statistics.median(column):.1f} ({min(column):.1f} to {max(column):.1f})"
        for name, column in zip(names, zip(*runs, strict=True), strict=True)
    )


if __name__ == "__main__":
    asyncio.run(main())

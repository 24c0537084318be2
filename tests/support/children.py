"""Ways from a process with a context into another process, and what code sees there.

`python -m support.children WAY` adopts what it was handed, goes that way, and prints what is seen at its end.
`DATABASE_URL` names a production that no way may lead to.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from redteam_sdk import context, db
from redteam_sdk.errors import NoContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

__all__ = ["WAYS", "look"]


def look() -> str:
    """The database that plain code sees by asking it, or `NoContext`."""
    try:
        return str(asyncio.run(db.fetchval("SELECT current_database()")))
    except NoContext:
        return "NoContext"


def look_by(token: str) -> str:
    """The same in a process that is given a token, say in a job, and arms itself from its environment."""
    context.arm_from_env()
    with context.bind(token):
        return look()


def tell(pipe: Connection, see: Callable[..., str], arguments: tuple[str, ...]) -> None:
    """See, and send it to the parent."""
    pipe.send(see(*arguments))


def in_process(method: str, see: Callable[..., str] = look, arguments: tuple[str, ...] = ()) -> str:
    """Run in a `multiprocessing.Process` that was started by this method."""
    making = multiprocessing.get_context(method)
    ours, theirs = making.Pipe()
    process = making.Process(target=tell, args=(theirs, see, arguments))  # type: ignore[attr-defined]
    process.start()
    try:
        return str(ours.recv()) if ours.poll(40) else "nothing"
    finally:
        process.join(10)


def forked() -> str:
    """Run in a child that `os.fork` makes."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, look().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()


def started(code: str, **variables: str) -> str:
    """Run in another Python program, which inherits this one's environment."""
    done = subprocess.run(
        [sys.executable, "-c", f"from support.children import context, look; {code}"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=40,
        check=True,
    )
    return done.stdout.strip()


def pooled() -> str:
    """Run in a worker of a `ProcessPoolExecutor`."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(look).result(40)


# The words are the first column of the table in docs/sdk.md.
WAYS: dict[str, Callable[[], str]] = {
    "`os.fork`; `multiprocessing` that forks": forked,
    "fork": lambda: in_process("fork"),
    "`multiprocessing` that spawns; `ProcessPoolExecutor`": lambda: in_process("spawn"),
    "pool": pooled,
    "a job with `context.serialise()` in it, under `context.bind` in an armed worker": lambda: in_process(
        "spawn", look_by, (context.serialise(),)
    ),
    "`subprocess`, any other program": lambda: started("print(look())"),
    "`subprocess` with `env={**os.environ, **context.handover()}`, and `context.adopt()` in it": lambda: (
        started("context.adopt(); print(look())", **context.handover())
    ),
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of forking beside threads
    context.adopt()
    print(WAYS[sys.argv[1]]())  # noqa: T201 - its output

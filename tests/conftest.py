"""Fixtures that every test may use."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import anyio
import pytest
from support.cli import CACHE, NO_MODELS

from redteam_forker.servers import discard_shared, open_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.servers import Server


def pytest_configure() -> None:
    """Take away what could reach a model: no test may. One that tries has no key, and calls a closed port."""
    for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "OPENAI_"))]:
        del os.environ[name]
    os.environ.update(NO_MODELS)
    # A shell's background job ignores Ctrl-C, and so would every process that the tests start and interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the embedded server that the tests' commands shared, once all workers are done with it."""
    if not hasattr(config, "workerinput"):
        anyio.run(discard_shared, CACHE / "redteam")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncpg runs on asyncio only, so every asynchronous test does."""
    return "asyncio"


@pytest.fixture(scope="session")
async def server(anyio_backend: str) -> AsyncIterator[Server]:
    """One embedded server for each worker. Tests share it: each makes databases of its own and drops them."""
    async with open_server() as opened:
        yield opened

"""Seeds for tests: made of strings, and loaded into databases and with roles that go with the scope."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redteam_forker.seeds import LoadFacts, Seed, SeedFile, lint, load
from support.databases import connected, scratch_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.seeds import Owners
    from redteam_forker.servers import Server

__all__ = ["INPUTS", "loaded", "loading", "needs_inputs", "roles_for", "seed_of"]

INPUTS = Path(__file__).resolve().parents[2].parent / "shared" / "inputs"
needs_inputs = pytest.mark.skipif(
    not INPUTS.is_dir(), reason="the folder of public seeds is not beside the repository"
)


def seed_of(*scripts: str, owners: Owners = "create", allow: frozenset[str] = frozenset()) -> Seed:
    """A seed of files `1.sql`, `2.sql` and so on."""
    files = (SeedFile(name=f"{place}.sql", data=text.encode()) for place, text in enumerate(scripts, 1))
    return Seed(files=tuple(files), owners=owners, allow=allow)


@contextlib.asynccontextmanager
async def roles_for(server: Server, seed: Seed) -> AsyncIterator[None]:
    """The roles that a seed needs and the server lacks, gone afterwards."""
    async with connected(server) as admin:
        there = {row[0] for row in await admin.fetch("SELECT rolname FROM pg_roles")}
        missing = [role for role in lint(seed).roles if role not in there]
        for role in missing:
            await admin.execute(f'CREATE ROLE "{role}" NOLOGIN')
        try:
            yield
        finally:
            for role in missing:
                await admin.execute(f'DROP ROLE "{role}"')


@contextlib.asynccontextmanager
async def loading(server: Server, seed: Seed) -> AsyncIterator[tuple[str, LoadFacts]]:
    """A database with a seed in it, and what loading it said."""
    async with roles_for(server, seed), scratch_database(server) as database:
        yield database, await load(server, database, seed)


async def loaded(server: Server, seed: Seed) -> LoadFacts:
    """Load a seed, and throw the database away."""
    async with loading(server, seed) as (_, facts):
        return facts

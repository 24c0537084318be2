"""Forks of other people's seeds, with a few writes to every table: what reading all of it finds is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.clones import cloned
from support.databases import connected
from support.oracle import Oracle
from support.oracle_rows import read_side
from support.scribbles import scribble
from support.seeds import INPUTS, loading, needs_inputs

from redteam_forker.seeds import Seed, SeedFile, read_seed

if TYPE_CHECKING:
    from redteam_forker.servers import Server

# With REDTEAM_HISTORIES, as in the searches of test_forker_changes_random.py, more than once.
_TIMES = 10 if os.environ.get("REDTEAM_HISTORIES") else 1
_SEEDS: dict[str, tuple[str, ...]] = {
    "pagila_neon": (".",),
    "openelis_clinic": (".",),
    "petclinic": ("schema.sql", "data.sql"),
    "postgraphile_kitchen": tuple(f"kitchen-sink-{part}.sql" for part in ("schema", "data", "permissions")),
}
# What a seed of these needs before it.
_FIRST = {"postgraphile_kitchen": "CREATE EXTENSION citext;"}


def seed_in(folder: str) -> Seed:
    seed = read_seed(INPUTS / folder, _SEEDS[folder], anchor=None, moves=())
    first = _FIRST.get(folder)
    if first is None:
        return seed
    return Seed(files=(SeedFile(name="first.sql", data=first.encode()), *seed.files))


@needs_inputs
@pytest.mark.timeout(0 if _TIMES > 1 else 120)
@pytest.mark.parametrize("folder", _SEEDS)
async def test_a_few_writes_to_every_table_of_a_public_seed_are_told_exactly(
    server: Server, folder: str
) -> None:
    async with loading(server, seed_in(folder)) as (baseline, _):
        async with connected(server, baseline) as session:
            await session.execute("VACUUM (FREEZE, ANALYZE)")
        oracle = Oracle(await read_side(server, baseline))
        for seed in range(_TIMES):
            async with cloned(server, baseline) as fork:
                took, _ = await scribble(server, fork.name, seed)
                changes = await fork.changes()
                assert await oracle.differences(server, fork.name, changes) == []
            assert len(took) > 5
            # Nothing but an unlogged table has to be looked for elsewhere than in the pages that changed.
            slow = {table.reason for table in changes.tables if table.method != "pages"}
            assert slow <= {"it is unlogged, so that its pages have no stamps"}

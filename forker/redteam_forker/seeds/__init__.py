"""Seeds: SQL files that become a template.

`read_seed` reads them, `lint` refuses what would leave the database, `preflight` asks a server for what they
need, `load` runs them with psql, and `move_dates` moves the world's dates by whole weeks, so that it is as
fresh today as on the day it was written for.
"""

from __future__ import annotations

from redteam_forker.seeds.flags import FLAGS
from redteam_forker.seeds.lint import Lint, lint
from redteam_forker.seeds.load import LoadFacts, load
from redteam_forker.seeds.moves import MoveFacts, move_dates
from redteam_forker.seeds.preflight import Preflight, preflight
from redteam_forker.seeds.script import Owners, Seed, SeedFile, read_seed

__all__ = [
    "FLAGS",
    "Lint",
    "LoadFacts",
    "MoveFacts",
    "Owners",
    "Preflight",
    "Seed",
    "SeedFile",
    "lint",
    "load",
    "move_dates",
    "preflight",
    "read_seed",
]

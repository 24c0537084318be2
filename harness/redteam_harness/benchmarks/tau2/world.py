"""The benchmark's world: its folder under seeds/, the rows that its loader makes, and its export."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from redteam_harness.benchmarks.tau2.document import sha256_of
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    import asyncpg

__all__ = ["ROLE", "SEED_FILES", "TOOLS", "State", "World", "open_world_folder"]

ROLE = "retail_app"
"""The application role of the world."""
SEED_FILES = ("schema.sql", "data.sql")
TOOLS = "tools"
"""The module of the world's tools."""
_LOAD_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An exported state: the document as JSON text, and the hash of what it says."""

    text: str = field(repr=False)
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A folder with a schema, tools, `load.py`, which makes rows, and `export.sql`, which makes the document.

    Attributes:
        folder: where it lies.
        export: one SELECT with one row and one column: the nested document as JSON.
    """

    folder: Path
    export: str

    def write_seed(self, db: Path, into: Path) -> None:
        """Put schema and rows of a data set into a folder.

        Raises:
            UsageError: the data set is not of the shape that the loader knows.
        """
        shutil.copyfile(self.folder / "schema.sql", into / "schema.sql")
        command = [sys.executable, str(self.folder / "load.py"), str(db), "--output", str(into / "data.sql")]
        done = subprocess.run(command, capture_output=True, check=False, timeout=_LOAD_S)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip().rsplit("\n", 1)[-1]
            raise UsageError(f"the world's loader refused {db}: {said}")

    async def state(self, connection: asyncpg.Connection) -> State:
        """A database's state, exported.

        Raises:
            EnvironmentFault: the export did not give one document.
        """
        text: Any = await connection.fetchval(self.export)
        if not isinstance(text, str):
            raise EnvironmentFault(f"{self.folder / 'export.sql'} gave no document")
        # Millions of letters: other forks go on meanwhile.
        return State(text=text, sha256=await anyio.to_thread.run_sync(_hash, text))

    async def state_sha256(self, connection: asyncpg.Connection) -> str:
        """The hash of a database's state.

        Raises:
            EnvironmentFault: the export did not give one document.
        """
        return (await self.state(connection)).sha256


def open_world_folder(folder: Path) -> World:
    """Look at a world's folder.

    Raises:
        UsageError: it is not one.
    """
    missing = [
        name for name in ("schema.sql", "load.py", "export.sql", "tools.py") if not (folder / name).is_file()
    ]
    if missing:
        raise UsageError(
            f"{folder} is no world of this benchmark: it has no {missing[0]}; "
            "name the folder seeds/retail of the project with --world"
        )
    return World(folder=folder.absolute(), export=(folder / "export.sql").read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return sha256_of(json.loads(text))

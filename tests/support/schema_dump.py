"""A database's schema as pg_dump tells it: who compares two of them needs nothing of ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_forker.servers import Server

__all__ = ["differing", "dump_schema"]

_ENTRY = re.compile(r"^--\n-- Name: (.*); Type: (.*); Schema: (.*); Owner: .*\n--\n", re.MULTILINE)
# Marks of the dump itself.
_NOISE = re.compile(r"^(?:\\(?:un)?restrict .*|SET .*|--.*)\n?", re.MULTILINE)


async def dump_schema(server: Server, database: str) -> dict[tuple[str, str, str], str]:
    """Type, schema and name of everything, and the statements that make it."""
    psql = server.psql(database)
    command = [Path(psql.argv[0]).with_name("pg_dump"), "--schema-only"]
    done = await anyio.run_process(
        [str(part) for part in command], env=dict(psql.env), check=False, stderr=subprocess.PIPE
    )
    assert done.returncode == 0, done.stderr.decode()
    _, *pieces = _ENTRY.split(done.stdout.decode())
    entries: dict[tuple[str, str, str], str] = {}
    for name, kind, schema, body in zip(*(pieces[at::4] for at in range(4)), strict=True):
        # Lines in order, because a column that is dropped and made again differs only by its place.
        lines = sorted(line.strip().removesuffix(",") for line in _NOISE.sub("", body).splitlines())
        entries[kind, schema, name] = entries.get((kind, schema, name), "") + "\n".join(filter(None, lines))
    return entries


def differing(
    before: Mapping[tuple[str, str, str], str], after: Mapping[tuple[str, str, str], str]
) -> list[tuple[str, str, str]]:
    """What is in one of them only, or made otherwise."""
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))

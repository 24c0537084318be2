"""Archives of pg_dump, turned into the SQL that pg_restore would run, so that the same check reads it.

The programs are those of the wheel: PostgreSQL 18's, which read what every older pg_dump wrote.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from redteam_forker.errors import SeedError
from redteam_forker.seeds.content import MOST_BYTES
from redteam_forker.servers import binaries

__all__ = ["restored_bytes", "restored_path"]

_TIMEOUT_S = 600.0
_CHUNK = 1 << 20
_LACKING = re.compile(r"does not support compression with (\w+)")
# pg_restore makes one up otherwise, and the same archive would be another seed at each launch.
_KEY = "redteamseed"


def restored_path(name: str, path: Path) -> bytes:
    """The SQL of an archive in a file or a directory.

    Raises:
        SeedError: pg_restore cannot read it, or it is more than `MOST_BYTES` of SQL.
    """
    program = binaries.installed() / "pginstall/bin/pg_restore"
    argv = [str(program), "-f", "-", f"--restrict-key={_KEY}", str(path.absolute())]
    env = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        ) as process,
    ):
        assert process.stdout is not None
        parts, total = [], 0
        while chunk := process.stdout.read(_CHUNK):
            total += len(chunk)
            if total > MOST_BYTES:
                process.kill()
                raise SeedError(
                    f"seed file {name!r} is more than {MOST_BYTES >> 20} MiB of SQL; dump less, for example "
                    "with pg_dump --exclude-table-data"
                )
            parts.append(chunk)
        try:
            status = process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SeedError(
                f"seed file {name!r}: pg_restore did not end; dump it again as plain SQL"
            ) from None
        said.seek(0)
        words = said.read().decode(errors="replace").replace(str(path.absolute()), name).strip()
    if status and (lacking := _LACKING.search(words)):
        raise SeedError(
            f"seed file {name!r} is compressed by {lacking.group(1)} inside, which the pg_restore here was "
            "built without; dump it again with pg_dump --compress=gzip, or as plain SQL (where it was made: "
            "pg_restore -f seed.sql)"
        )
    if status:
        raise SeedError(
            f"seed file {name!r} is an archive that pg_restore cannot read: {_last(words)}; dump it again"
        )
    return b"".join(parts)


def restored_bytes(name: str, data: bytes) -> bytes:
    """The SQL of an archive that was packed once more, or that has no file of its own.

    Raises:
        SeedError: as `restored_path`.
    """
    with tempfile.NamedTemporaryFile(prefix="seed-") as file:
        file.write(data)
        file.flush()
        return restored_path(name, Path(file.name))


def _last(words: str) -> str:
    lines = [line for line in words.splitlines() if line.strip()]
    return lines[-1].removeprefix("pg_restore: ").removeprefix("error: ") if lines else "it said nothing"

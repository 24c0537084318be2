"""Loads a seed with psql, one run per file, and says what went wrong by the seed's own lines."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread

from redteam_forker import _pg
from redteam_forker.errors import SeedError, ServerUnavailable
from redteam_forker.seeds.lint import lint
from redteam_forker.seeds.preflight import preflight
from redteam_forker.seeds.rights import audit, give_memberships, rights_of

if TYPE_CHECKING:
    from anyio.abc import Process

    from redteam_forker.seeds.lint import Lint, Script
    from redteam_forker.seeds.preflight import Preflight
    from redteam_forker.seeds.rights import Audit, Rights
    from redteam_forker.seeds.script import Seed
    from redteam_forker.servers.server import Server

__all__ = ["LoadFacts", "load"]

_KEPT_BYTES = 64 * 1024
_TOLD = 20
_ERROR = re.compile(
    r"^psql:<stdin>:(?P<line>\d+): (?P<message>(?!NOTICE|WARNING|INFO|LOG|DEBUG).*)$", re.MULTILINE
)
_HINT = re.compile(r"^HINT:  (.*)$", re.MULTILINE)
_COPY_LINE = re.compile(r"^CONTEXT:  COPY .*?, line (\d+)", re.MULTILINE)
_SERVER_GONE = 2  # psql's exit status when it cannot reach the server

_TABLES = """
SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
"""

# What an error usually means for a seed, by words of the server's message. Messages are in English: LC_ALL=C.
_ADVICE = (
    (
        r"extension \"([^\"]+)\" is not available",
        "this server lacks the extension; name another one with --server",
    ),
    (r"unsupported XML feature", "this server was built without XML; name another one with --server"),
    (
        r"type \"(?:\w+\.)?(?:citext|hstore|ltree|vector|geometry|geography|cube)\" does not exist",
        "it comes with an extension; put CREATE EXTENSION into a file before this one",
    ),
    (
        r"function (?:\w+\.)?(?:uuid_generate_v\w+|crypt|gen_salt|digest|hmac)\(.*does not exist",
        "it comes with the extension uuid-ossp or pgcrypto; put CREATE EXTENSION into a file before this one",
    ),
    (
        r"schema \"(?:auth|storage|extensions|graphql|realtime|vault)\" does not exist",
        "Supabase makes it; put a file before this one that makes what is used of it",
    ),
    (r"tablespace \"[^\"]+\" does not exist", "tablespaces belong to the server; pg_dump --no-tablespaces"),
    (
        r"permission denied (?:for language|to create extension)|must be superuser",
        "only a superuser may; name a server where our role is one with --server",
    ),
    (
        r"permission denied|must be (?:owner|member|able to SET ROLE)",
        "who is no superuser cannot give objects away everywhere; set seed.owners to strip",
    ),
    (r"must be loaded via \"?shared_preload_libraries", "name a server that preloads it with --server"),
    (r"role \"[^\"]+\" already exists", "roles belong to the server; make it only IF NOT EXISTS in pg_roles"),
    (r"role \"[^\"]+\" does not exist", "create the role in the seed"),
    (r"unrecognized configuration parameter", "the dump is for a newer PostgreSQL; remove the line"),
    (r"invalid byte sequence", "save the file as UTF-8, or SET client_encoding in its first line"),
    (r"already exists", "the seed makes it twice; check the order and number of its files"),
    (r"does not exist", "something before it is missing; check that all files are listed, in order"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFacts:
    """What was loaded.

    Attributes:
        tables: how many tables the database has now.
        load_s: how long psql took, in seconds.
        stand_ins: extensions that the server lacks and that functions stand in for.
        stripped_owners: `file:line: ALTER TABLE ... OWNER TO` for each, when owners are stripped.
        set_aside: `file:line: CREATE ROLE name` for each statement that was not run.
        notes: in words, what else differs from what the files say.
        roles: that the seed's own code made; they may not log in, and nobody else knows of them.
    """

    tables: int
    load_s: float
    stand_ins: tuple[str, ...] = ()
    stripped_owners: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """All of it that a run should tell, in words and in bounds."""
        lines = [*self.notes, *(f"{line} was set aside" for line in self.set_aside[:_TOLD])]
        if len(self.set_aside) > _TOLD:
            lines.append(f"and {len(self.set_aside) - _TOLD} more were set aside")
        if self.stripped_owners:
            lines.append(f"{len(self.stripped_owners)} statements about owners were left out")
        return tuple(lines)


async def load(server: Server, database: str, seed: Seed, *, timeout_s: float = 1800.0) -> LoadFacts:
    """Load a seed into a database that is still nobody else's. Its roles (`Lint.roles`) must exist.

    Nothing unlinted is ever run. A failure leaves the database half loaded: the caller drops it. Rights that
    the seed's code gave to roles are taken back, also after a failure.

    Raises:
        SeedError: the server lacks something, a statement failed, a role got rights that it may not have, or
            there is no table afterwards; with file, line and psql's message.
        ServerUnavailable: the server could not be reached, or took longer than `timeout_s` per file.
    """
    checked = await anyio.to_thread.run_sync(lint, seed)
    ready = await preflight(server, seed)
    ready.check()
    async with server.maintenance() as session:
        before = await rights_of(session)
        withheld = await give_memberships(session, checked.memberships, before, server.facts.version_num)
        before = await rights_of(session)
    started = time.monotonic()
    try:
        for script in checked.scripts:
            await _run(server, database, script, _rendered(script, database, ready), timeout_s)
    finally:
        with anyio.CancelScope(shield=True):
            found = await _audit(server, checked, before)
    load_s = time.monotonic() - started
    found.check()
    connection = await server.connect(database)
    try:
        tables = await connection.fetchval(_TABLES)
    finally:
        await _pg.close(connection)
    if not tables:
        names = ", ".join(script.name for script in checked.scripts)
        raise SeedError(
            f"the seed ({names}) ran without an error but made no table; list the files of its schema too"
        )
    return LoadFacts(
        tables=tables,
        load_s=load_s,
        stand_ins=ready.stand_ins,
        stripped_owners=checked.stripped_owners,
        set_aside=(*checked.set_aside, *withheld),
        notes=(*seed.notes, *ready.notes),
        roles=found.roles,
    )


def _rendered(script: Script, database: str, ready: Preflight) -> bytes:
    return script.render(database, unknown_settings=ready.unknown_settings, extensions=ready.replaced)


async def _audit(server: Server, checked: Lint, before: Rights) -> Audit:
    """A DO block may put any SQL together: what it did to roles shows only afterwards."""
    async with server.maintenance() as session:
        return await audit(
            session,
            before,
            texts=[script.text for script in checked.scripts],
            all_ours=server.facts.kind == "embedded",
        )


async def _run(server: Server, database: str, script: Script, data: bytes, timeout_s: float) -> None:
    command = server.psql(database)
    argv = [*command.argv, "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-f", "-"]
    env = {**command.env, "PGCLIENTENCODING": "UTF8", "LC_ALL": "C", "PSQL_PAGER": "", "PSQLRC": os.devnull}
    tail = b""
    # The script is psql's standard input, since COPY data come from there: a file without a name. Nobody
    # else can change it, and psql may end before it has read it all without a pipe to break.
    with (
        await anyio.to_thread.run_sync(_nameless, data, script.name) as file,
        anyio.move_on_after(timeout_s) as scope,
    ):
        async with await anyio.open_process(
            argv, env=env, stdin=file, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        ) as process:
            tail = await _tail(process)
            status = await process.wait()
    if scope.cancelled_caught:
        raise ServerUnavailable(
            f"loading {script.name} took longer than {timeout_s:.0f} s and was stopped; load a smaller seed"
        )
    if status:
        raise _failure(script, status, tail.decode(errors="replace"))


def _nameless(data: bytes, name: str) -> IO[bytes]:
    """A file that has no name and holds `data`, to be read from its beginning."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - whoever asked for it closes it
    try:
        file.write(data)
        file.seek(0)
    except OSError as error:
        file.close()
        raise ServerUnavailable(
            f"{name} cannot be put into {tempfile.gettempdir()} to be loaded: {error.strerror}; "
            "free some space there"
        ) from error
    return file


async def _tail(process: Process) -> bytes:
    """The end of what psql says: with ON_ERROR_STOP the error comes last, after any number of notices."""
    assert process.stderr is not None
    kept = b""
    async for chunk in process.stderr:
        kept = (kept + chunk)[-_KEPT_BYTES:]
    return kept


def _failure(script: Script, status: int, said: str) -> SeedError | ServerUnavailable:
    found = list(_ERROR.finditer(said))
    if not found:
        last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
        if status == _SERVER_GONE:
            return ServerUnavailable(
                f"psql lost the server while loading {script.name}: {last}", retryable=True
            )
        return SeedError(f"{script.name}: psql stopped: {last}")
    error = found[-1]
    message = re.sub(r"^\w+:  ?", "", error["message"])
    after = said[error.end() :]
    hint = _HINT.search(after)
    advice = next((advice for words, advice in _ADVICE if re.search(words, message)), None)
    way_out = advice or (hint.group(1) if hint else "mend the statement that begins there")
    place = script.file.place(_line(script, int(error["line"]), after))
    note = f" ({script.file.note})" if script.file.note else ""
    return SeedError(f"{place}: {message}; {way_out}{note}")


def _line(script: Script, reported: int, after: str) -> int:
    """The line where the statement begins, or of the COPY row; psql reports where it had read to."""
    copied = _COPY_LINE.search(after)
    last = None
    for piece in script.pieces:
        if piece.line > reported:
            break
        last = piece
    if last is None:
        return reported
    if copied and last.data_line is not None:
        return last.data_line + int(copied.group(1)) - 1
    return last.line

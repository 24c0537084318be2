"""Templates: a seed, loaded once and sealed, that every fork is a clone of; and its readable baseline.

A template is named by the hash of all that went into it, and takes its name when it is complete: what is
half-built has another name and goes with the build that failed. Nobody can connect to a template, so nothing
holds it open; its baseline is a clone that never changes, for whoever asks what the world was like before a
conversation.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import asyncpg

from redteam_forker import _pg, database, seeds
from redteam_forker import role as roles
from redteam_forker.errors import ServerUnavailable
from redteam_forker.ledger import builders_lock
from redteam_forker.names import build_name, quote_ident, quote_literal, template_name
from redteam_forker.reach import check_reach
from redteam_forker.role import Setting
from redteam_forker.seeds.moves import weeks_between
from redteam_forker.sql import query
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from redteam_forker.registry import Registry
    from redteam_forker.seeds import Seed
    from redteam_forker.servers.server import Server, ServerFacts

__all__ = [
    "MADE_FOR",
    "Template",
    "build_template",
    "drop_template",
    "template_hash",
]

# Goes into the hash: raise it when the same seed would be built differently (P13).
_BUILDER = 4
# An empty database, and how much larger than its text a seed may become, with its indexes.
_EMPTY_BYTES, _GROWTH = 8 << 20, 3
# The comment of a role that was made for a seed, so that it can be found when the template is gone. Everybody
# can read it (P49).
MADE_FOR = "made for "


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A sealed database and what is known of it.

    Attributes:
        name: the database's.
        hash: hexadecimal SHA-256 of seed, weeks moved, server version, application role, builder, and what
        the server has of the extensions and settings that the seed asks for.
        baseline: the database that may be read; sessions in it are read-only by default.
        group: the NOLOGIN role through which forks' roles get the application's rights.
        role: the application role that the group is a member of; None if the group may read and write every
        row.
        weeks: how far dates were moved; negative is into the past.
        columns: which columns were moved.
        created_roles: roles that the seed names and that the server did not have; made NOLOGIN.
        settings: what a clone loses, and gets again.
        tables: how many there are.
        size_bytes: of the database.
        load_s: how long building took, in seconds; of the first build, if it was found.
        from_cache: whether it was there already.
        notes: in words, what differs from what the seed's files say.
    """

    name: str
    hash: str
    baseline: str
    group: str
    role: str | None
    weeks: int
    columns: tuple[str, ...]
    created_roles: tuple[str, ...]
    settings: tuple[Setting, ...]
    tables: int
    size_bytes: int
    load_s: float
    from_cache: bool
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """What is kept with the database."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Template:
        """What was kept with the database."""
        data: dict[str, Any] = json.loads(text)
        settings = tuple(Setting(**setting) for setting in data.pop("settings"))
        columns, created = tuple(data.pop("columns")), tuple(data.pop("created_roles"))
        notes = tuple(data.pop("notes", ()))
        return cls(**data, settings=settings, columns=columns, created_roles=created, notes=notes)


def template_hash(seed: Seed, facts: ServerFacts, *, role: str | None, weeks: int, offers: str = "") -> str:
    """The hash of all that decides what a template holds; `offers` is `Preflight.digest`."""
    parts = [seed.hash, str(weeks), str(facts.version_num), json.dumps(role), str(_BUILDER), offers]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


async def build_template(
    server: Server, seed: Seed, *, role: str | None, today: date, registry: Registry | None = None
) -> Template:
    """Find the template of a seed, or build it; a build that fails or is cancelled leaves nothing.

    Whoever builds the same at the same time waits, and finds it.

    Args:
        server: where.
        seed: what from.
        role: the application's role, whose rights forks get; None gives them reading and writing of all rows.
        today: what the seed's anchor moves to, by whole weeks.
        registry: ours, where the server has one: old templates make way where the disk is short, and this
        one stays as long as we live.

    Raises:
        SeedError: the seed is refused, or does not load.
        UsageError: `role` cannot stand for the application, or forks with its rights could enter a database
        that is not ours.
        ServerUnavailable: the server did not do it.
        DropFailed: a build failed, and something of it could not be removed.
    """
    found = await anyio.to_thread.run_sync(seeds.lint, seed)
    ready = await seeds.preflight(server, seed)
    ready.check()
    build = _Build(
        server=server, seed=seed, named=tuple(found.roles), role=role, today=today, offers=ready.digest
    )
    with _pg.translated(f"cannot build template {build.name!r}", ServerUnavailable):
        async with builders_lock(server) as connection:
            template = await build.found(connection)
            if template is None:
                if registry is not None:
                    await registry.room.make(_likely_bytes(seed), held=connection)
                template = await build.made(connection)
            if registry is not None:
                await registry.use(template.name)
            return template


async def drop_template(server: Server, template: Template) -> None:
    """Remove a template, its baseline, its group and the roles made for it, as far as they are there.

    A role that other databases depend on stays.

    Raises:
        UsageError: forks of it are alive.
        ServerUnavailable: the server did not do it.
    """
    with _pg.translated(f"cannot drop template {template.name!r}", ServerUnavailable):
        async with builders_lock(server) as connection:
            stem = template.name.removesuffix("template")
            forks = await connection.fetch(query("names_like"), f"^{stem}[a-z2-7]{{16}}$")
            if forks:
                names = ", ".join(row["name"] for row in forks)
                raise UsageError(f"template {template.name!r} still has forks: {names}; drop them first")
            for name in (template.baseline, template.name):
                await database.drop(connection, server, name)
            for name in (template.group, f"{stem}owner"):
                await database.drop_role(connection, name)
            for name in template.created_roles:
                with contextlib.suppress(asyncpg.DependentObjectsStillExistError):
                    await database.drop_role(connection, name)


@dataclass(frozen=True, kw_only=True)
class _Build:
    """One call of `build_template`."""

    server: Server
    seed: Seed
    named: tuple[str, ...]
    role: str | None
    today: date
    offers: str

    @property
    def weeks(self) -> int:
        anchor = self.seed.anchor
        return weeks_between(anchor, self.today) if anchor and self.seed.moves else 0

    @property
    def hash(self) -> str:
        return template_hash(
            self.seed, self.server.facts, role=self.role, weeks=self.weeks, offers=self.offers
        )

    def _part(self, part: str) -> str:
        return template_name(self.server.facts.instance, self.hash, part)

    @property
    def name(self) -> str:
        return self._part("template")

    @property
    def baseline(self) -> str:
        return self._part("baseline")

    @property
    def group(self) -> str:
        return self._part("app")

    @property
    def owner(self) -> str:
        return self._part("owner")

    async def found(self, connection: asyncpg.Connection) -> Template | None:
        """The finished template of this hash. Anything else under its names is garbage, and is removed."""
        row = await connection.fetchrow(query("template_state"), self.name)
        if row is not None and row["sealed"] and row["facts"]:
            template = Template.from_json(row["facts"])
            # The name has 40 bits of the hash; the facts have all.
            if template.hash == self.hash and await self._is_complete(connection):
                await check_reach(self.server, self.role)
                return replace(template, from_cache=True)
        for name in (self.baseline, self.name):
            await database.drop(connection, self.server, name)
        for name in (self.group, self.owner):
            await database.drop_role(connection, name)
        return None

    async def _is_complete(self, connection: asyncpg.Connection) -> bool:
        missing = await connection.fetch(query("missing_roles"), [self.group])
        baseline = await connection.fetchrow(query("database_state"), self.baseline)
        return (
            not missing
            and baseline is not None
            and baseline["open"]
            and baseline["connection_limit"] != database.INVALID
        )

    async def made(self, connection: asyncpg.Connection) -> Template:
        began = anyio.current_time()
        draft = build_name(self.server.facts.instance, self.hash)
        creator = await database.creator_of(connection)
        missing = await connection.fetch(query("missing_roles"), list(self.named))
        created = tuple(row["name"] for row in missing)
        async with contextlib.AsyncExitStack() as undo:
            databases = (draft, self.baseline, self.name)
            undo.push_async_callback(
                database.discard, self.server, creator, databases, (self.group, self.owner, *created)
            )
            await roles.execute_shared(
                connection,
                [
                    statement
                    for name in (*created, self.group)
                    for statement in (
                        f"CREATE ROLE {quote_ident(name)} NOLOGIN",
                        *roles.adoption(self.server.facts, name),
                        f"COMMENT ON ROLE {quote_ident(name)} IS {quote_literal(MADE_FOR + self.name)}",
                    )
                ],
            )
            await database.clone(connection, draft, "template0", file_copy=True)
            await connection.execute(f"ALTER DATABASE {quote_ident(draft)} ALLOW_CONNECTIONS true")
            loaded = await seeds.load(self.server, draft, self.seed)
            template = await self._filled(connection, draft, (*created, *loaded.roles))
            template = replace(template, load_s=anyio.current_time() - began, notes=loaded.told)
            await self._seal(connection, draft, template)
            await self._make_baseline(connection, template)
            undo.pop_all()
        return template

    async def _filled(self, connection: asyncpg.Connection, draft: str, created: tuple[str, ...]) -> Template:
        """Finish the loaded database from the inside, and describe it."""
        session = await self.server.connect(draft)
        try:
            # VACUUM marks no page whose rows were committed without a flush of the log. A commit that waits
            # for its flush, the grants' at the latest, takes along all that came before.
            await session.execute("SET synchronous_commit = on")
            moved = await seeds.move_dates(session, self.seed, today=self.today)
            await self._disown(session)
            await self._grant(session)
            await check_reach(self.server, self.role)
            # Frozen rows and visible pages are what makes a change set cheap to find.
            await session.execute("VACUUM (FREEZE)")
            # By name: ANALYZE of a table with a foreign child asks the foreign server for a sample (P77).
            names = [row["name"] for row in await session.fetch(query("tables_to_analyze"))]
            if names:
                await session.execute(f"ANALYZE {', '.join(names)}")
            # Written anew, a catalog has no maps of its free space and of what is visible: a quarter fewer
            # files for each clone to make and each drop to unlink, and an eighth fewer bytes.
            for row in await session.fetch(query("catalogs_with_maps")):
                await session.execute(f"VACUUM (FULL, FREEZE) {row['name']}")
        finally:
            await _pg.close(session)
        # VACUUM removed the file in which the first session of a database leaves the catalogs' descriptions
        # (pg_internal.init). With a new one in the template every clone has it, and is entered 2 ms sooner.
        session = await self.server.connect(draft)
        try:
            tables = await session.fetchval(query("count_tables"))
            size_bytes = await session.fetchval("SELECT pg_database_size(current_database())")
        finally:
            await _pg.close(session)
        settings = await connection.fetch(query("database_settings"), draft, self.role)
        return Template(
            name=self.name,
            hash=self.hash,
            baseline=self.baseline,
            group=self.group,
            role=self.role,
            weeks=moved.weeks,
            columns=tuple(moved.columns),
            created_roles=created,
            settings=tuple(Setting(**row) for row in settings),
            tables=tables,
            size_bytes=size_bytes,
            load_s=0.0,
            from_cache=False,
        )

    async def _disown(self, session: asyncpg.Connection) -> None:
        """Take SECURITY DEFINER routines from the superuser who loaded them: they run as their owner (P46).

        Their new owner reads and writes every row of the database, past row-level security, and nothing else.
        """
        routines = await session.fetch(query("definers_of_superusers"))
        if not routines:
            return
        owner = quote_ident(self.owner)
        await roles.execute_shared(
            session,
            [
                f"CREATE ROLE {owner} NOLOGIN BYPASSRLS",
                f"COMMENT ON ROLE {owner} IS {quote_literal(MADE_FOR + self.name)}",
                f"GRANT pg_read_all_data, pg_write_all_data TO {owner}",
                *(f"ALTER ROUTINE {row['routine']} OWNER TO {owner}" for row in routines),
            ],
        )

    async def _grant(self, session: asyncpg.Connection) -> None:
        group = quote_ident(self.group)
        if self.role is not None:
            problems = await roles.application_problems(session, self.role)
            if problems:
                raise UsageError(
                    f"role {self.role!r} cannot be the application's: {'; '.join(problems)}; "
                    "name the role that the application logs in as, or none"
                )
            await roles.execute_shared(session, [f"GRANT {quote_ident(self.role)} TO {group}"])
            return
        schemas = [quote_ident(row["name"]) for row in await session.fetch(query("own_schemas"))]
        await session.execute(
            ";\n".join(statement for schema in schemas for statement in _grants(schema, group))
        )

    async def _seal(self, connection: asyncpg.Connection, draft: str, template: Template) -> None:
        """Give the finished database its name, shut it, describe it: all at once or not at all."""
        name = quote_ident(template.name)
        await roles.execute_shared(
            connection,
            [
                f"ALTER DATABASE {quote_ident(draft)} RENAME TO {name}",
                f"ALTER DATABASE {name} ALLOW_CONNECTIONS false",
                f"ALTER DATABASE {name} IS_TEMPLATE true",
                f"COMMENT ON DATABASE {name} IS {quote_literal(template.to_json())}",
            ],
        )

    async def _make_baseline(self, connection: asyncpg.Connection, template: Template) -> None:
        name = template.baseline
        await database.clone(connection, name, template.name, file_copy=True)
        read_only = Setting(role=None, name="default_transaction_read_only", value="on")
        everybody = (setting for setting in template.settings if setting.role is None)
        await roles.execute_shared(
            connection,
            [
                *(roles.setting_statement(setting, name) for setting in (*everybody, read_only)),
                f"ALTER DATABASE {quote_ident(name)} ALLOW_CONNECTIONS true",
            ],
        )


def _likely_bytes(seed: Seed) -> int:
    """What a template and its baseline may take; a guess, since only loading it can tell."""
    return 2 * (_EMPTY_BYTES + _GROWTH * sum(len(file.data) for file in seed.files))


def _grants(schema: str, group: str) -> Sequence[str]:
    return (
        f"GRANT USAGE ON SCHEMA {schema} TO {group}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {group}",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {group}",
    )

"""The pytest plugin: fixtures `fork` and `fork_template`, for any project with a seed (docs/pytest.md).

pytest imports this module in every project of an environment, so its own imports are light: drivers and
parsers are imported by the first test that asks for a fork. The forker's asynchronous functions run in an
event loop of their own, in a thread, so the fixtures are plain ones: synchronous tests and asynchronous ones,
whatever runs these, see the same. `redteam_forker` must not be imported by way of a name at the top here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    import asyncpg
    from anyio.from_thread import BlockingPortal

    from redteam_forker.changes import ChangeSet
    from redteam_forker.fork import Fork
    from redteam_forker.pool import Pool
    from redteam_forker.registry import Registry
    from redteam_forker.servers import Server
    from redteam_forker.template import Template

__all__ = ["ForkedDatabase"]

# Above the longest debugging session; forks go when their test ends.
_LIFETIME_S = 24 * 3600.0
_DEADLINE_S = 300.0
_KEEP = ("none", "failed")
_NO_SEED = (
    "the fixture `fork` needs a seed: name its SQL files, relative to the configuration file, as in\n"
    "    [tool.pytest.ini_options]\n"
    '    redteam_seed = ["schema.sql", "data.sql"]'
)
_NOWHERE_TO_KEEP = (
    "redteam_keep = failed needs a server that outlives the tests; "
    "name one by redteam_server, or a folder that keeps one by redteam_cache"
)

_name = pytest.StashKey[str]()
_failed = pytest.StashKey[bool]()


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedDatabase:
    """A fresh fork of the template: a database and the one role that may enter it, for one test.

    Attributes:
        name: of the database and of the role.
        host: a socket's directory, or a host name or address.
        port: the server's.
        password: the role's. In no repr.
    """

    name: str
    host: str
    port: int
    password: str = field(repr=False)
    _session: _Session = field(repr=False)
    _fork: Fork = field(repr=False)

    @property
    def dsn(self) -> str:
        """A URI for libpq, asyncpg, psycopg and whatever reads such. It holds the password."""
        user, password, host = (quote(part, safe="") for part in (self.name, self.password, self.host))
        return f"postgresql://{user}:{password}@/{self.name}?host={host}&port={self.port}"

    def connect(self, **options: Any) -> _Connecting:
        """Open an asyncpg connection in the test's own loop: `async with fork.connect() as connection`.

        Or `connection = await fork.connect()`, and close it.

        Args:
            options: what `asyncpg.connect` takes besides where to connect to.
        """
        return _Connecting(dsn=self.dsn, options=options)

    def changes(self) -> ChangeSet:
        """What the test has committed so far, against the template: rows, sequences and schema objects."""
        return self._session.changes(self._fork)


@dataclass(slots=True, kw_only=True)
class _Connecting:
    """An asyncpg connection in the making: to be awaited, or entered."""

    dsn: str = field(repr=False)
    options: dict[str, Any]
    _connection: asyncpg.Connection | None = field(default=None, init=False, repr=False)

    def __await__(self) -> Generator[Any, None, asyncpg.Connection]:
        return self._open().__await__()

    async def __aenter__(self) -> asyncpg.Connection:
        self._connection = await self._open()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        assert self._connection is not None
        await self._connection.close()

    async def _open(self) -> asyncpg.Connection:
        import asyncpg

        return await asyncpg.connect(self.dsn, **self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The configuration, read once.

    Attributes:
        base: the folder that the seed's names are relative to.
        seed: the seed's files, in load order.
        anchor: the day the seed's dates are for, or None.
        moves: the columns that move with it.
        role: the application's role, or None.
        server: a DSN, or None for a server of our own.
        allow_databases: databases on it that forks' roles may be able to enter.
        cache: the folder that keeps our own server's data; None: it is new each time.
        keep: `none` or `failed`.
    """

    base: Path
    seed: tuple[str, ...]
    anchor: str | None
    moves: tuple[str, ...]
    role: str | None
    server: str | None = field(repr=False)
    allow_databases: tuple[str, ...]
    cache: Path | None
    keep: str


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings; docs/pytest.md explains them."""
    parser.addini("redteam_seed", "SQL files or folders of a fork's seed, in load order", type="args")
    parser.addini("redteam_seed_anchor", "the day that the seed's dates are for, YYYY-MM-DD", default="")
    parser.addini("redteam_seed_moves", "columns that move with the anchor, table.column", type="args")
    parser.addini("redteam_role", "role whose rights a test on a fork has; default: all rows", default="")
    parser.addini("redteam_server", "DSN of the server to fork on; default: one of our own", default="")
    parser.addini(
        "redteam_allow_databases", "databases of redteam_server that forks could enter, and may", type="args"
    )
    parser.addini("redteam_cache", "folder that keeps our own server between sessions", default="")
    parser.addini("redteam_keep", "forks that stay after their test: none or failed", default="none")
    group = parser.getgroup("redteam", "forks of a seeded Postgres database")
    group.addoption("--redteam-server", metavar="DSN", help="fork on this server (see redteam_server)")
    group.addoption("--redteam-keep", choices=_KEEP, help="forks that stay (see redteam_keep)")


def _options(config: pytest.Config) -> _Options:
    from redteam_sdk.errors import UsageError

    base = config.inipath.parent if config.inipath else config.rootpath
    keep = config.getoption("redteam_keep") or config.getini("redteam_keep")
    server = config.getoption("redteam_server") or config.getini("redteam_server") or None
    folder = config.getini("redteam_cache")
    cache = base / Path(folder).expanduser() if folder else None
    if keep not in _KEEP:
        raise UsageError(f"redteam_keep is {keep!r}; it must be none or failed")
    if server is not None and cache is not None:
        raise UsageError("redteam_server and redteam_cache name two servers; leave one of them out")
    if keep == "failed" and server is None and cache is None:
        raise UsageError(_NOWHERE_TO_KEEP)
    seed = tuple(config.getini("redteam_seed"))
    if not seed:
        raise UsageError(_NO_SEED)
    return _Options(
        base=base,
        seed=seed,
        anchor=config.getini("redteam_seed_anchor") or None,
        moves=tuple(config.getini("redteam_seed_moves")),
        role=config.getini("redteam_role") or None,
        server=server,
        allow_databases=tuple(config.getini("redteam_allow_databases")),
        cache=cache,
        keep=keep,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A server, our registration on it where others use it too, and the forks that wait for the next test."""

    server: Server
    registry: Registry | None
    pool: Pool


class _Session:
    """One pytest process's server and template, and the thread in which the forker works for it."""

    def __init__(self, options: _Options, portal: BlockingPortal, place: _Place, template: Template) -> None:
        self.options = options
        self.template = template
        self._portal = portal
        self._place = place
        self._live: dict[str, Fork] = {}

    def make(self, label: str) -> ForkedDatabase:
        fork = self._portal.call(self._make, label)
        return ForkedDatabase(
            name=fork.name,
            host=fork.host,
            port=fork.port,
            password=fork.password,
            _session=self,
            _fork=fork,
        )

    async def _make(self, label: str) -> Fork:
        fork = await self._place.pool.checkout(lifetime_s=_LIFETIME_S, deadline_s=_DEADLINE_S, label=label)
        self._live[fork.name] = fork
        return fork

    def drop(self, name: str) -> None:
        self._portal.call(self._drop, name)

    async def _drop(self, name: str) -> None:
        await self._place.pool.drop(self._live[name])
        del self._live[name]

    def keep(self, name: str) -> None:
        self._portal.call(self._keep, name)

    async def _keep(self, name: str) -> None:
        from redteam_forker.fork import keep_fork

        assert self._place.registry is not None
        await keep_fork(self._place.server, self._live[name], registry=self._place.registry)
        del self._live[name]

    async def drop_all(self) -> None:
        """Drop what no fixture dropped: an interrupt may come between making a fork and handing it over."""
        for name in tuple(self._live):
            await self._drop(name)

    def changes(self, fork: Fork) -> ChangeSet:
        return self._portal.call(self._changes, fork)

    async def _changes(self, fork: Fork) -> ChangeSet:
        from redteam_forker.changes import collect_changes

        return await collect_changes(
            self._place.server, baseline=self.template.baseline, fork=fork.name, watermark=fork.watermark
        )


@contextlib.asynccontextmanager
async def _opened(options: _Options, portal: BlockingPortal) -> Any:
    from datetime import UTC, date, datetime

    from redteam_forker.pool import open_pool
    from redteam_forker.registry import open_registry
    from redteam_forker.seeds import read_seed
    from redteam_forker.servers import open_server
    from redteam_forker.sweep import sweep
    from redteam_forker.template import build_template
    from redteam_sdk.errors import UsageError

    try:
        anchor = date.fromisoformat(options.anchor) if options.anchor else None
    except ValueError:
        raise UsageError(f"redteam_seed_anchor is {options.anchor!r}; write a day as 2026-11-30") from None
    seed = read_seed(options.base, options.seed, anchor=anchor, moves=options.moves)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            open_server(options.server, shared=options.cache, allow_databases=options.allow_databases)
        )
        registry = None
        if options.server is not None or options.cache is not None:
            # Others use it too, and we may be killed: who comes next can tell our forks from theirs.
            registry = await stack.enter_async_context(open_registry(server))
            await sweep(server, registry=registry)
        today = datetime.now(UTC).astimezone().date()
        template = await build_template(server, seed, role=options.role, today=today, registry=registry)
        # The next test's fork is made while this one runs.
        pool = await stack.enter_async_context(
            open_pool(server, template, registry, low=1, high=1, creators=1)
        )
        session = _Session(options, portal, _Place(server=server, registry=registry, pool=pool), template)
        try:
            yield session
        finally:
            await session.drop_all()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Show what the user can mend, or the server's fault, as one message without our stack."""
    from redteam_sdk.errors import EnvironmentFault, UsageError

    try:
        yield
    except (UsageError, EnvironmentFault) as error:
        pytest.fail(f"redteam: {error}", pytrace=False)


@pytest.fixture(scope="session")
def _redteam_session(request: pytest.FixtureRequest) -> Iterator[_Session]:
    with _explained():
        from anyio.from_thread import start_blocking_portal

        options = _options(request.config)
        with (
            start_blocking_portal("asyncio") as portal,
            portal.wrap_async_context_manager(_opened(options, portal)) as session,
        ):
            yield session


@pytest.fixture(scope="session")
def fork_template(_redteam_session: _Session) -> Template:
    """The sealed template of the configured seed (`redteam_seed`), built once for a session, or found."""
    return _redteam_session.template


@pytest.fixture
def fork(request: pytest.FixtureRequest, _redteam_session: _Session) -> Iterator[ForkedDatabase]:
    """A fresh, private, writable fork of the seeded database: `fork.dsn`, `async with fork.connect()`."""
    with _explained():
        made = _redteam_session.make(request.node.nodeid)
        request.node.stash[_name] = made.name
        yield made
        if _redteam_session.options.keep == "failed" and request.node.stash.get(_failed, False):
            _redteam_session.keep(made.name)
        else:
            _redteam_session.drop(made.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test failed, and name the fork that stays for it."""
    report = yield
    if report.failed and call.when != "teardown":
        item.stash[_failed] = True
        name = item.stash.get(_name, None)
        keep = item.config.getoption("redteam_keep") or item.config.getini("redteam_keep")
        if name is not None and keep == "failed":
            report.sections.append(
                ("redteam fork", f"kept: {name}   (redteam forks psql {name}, redteam forks drop {name})")
            )
    return report

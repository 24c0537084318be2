"""A PostgreSQL in a container, through testcontainers: for seeds that need what the embedded server lacks.

The image is the user's choice (`postgres:18`, or one with their extensions) and is started as the official
image is: user, password and initdb's arguments by environment, settings by arguments of `postgres`. The
container is removed with the scope. One whose owner was killed is found by its labels and removed by the next
start on the same machine; Ryuk, which would be a second container for this, is not used.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import secrets
import urllib.parse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from redteam_forker import _pg
from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import binaries, existing, settings, state
from redteam_forker.servers.cluster import Cluster, facts_of
from redteam_forker.sql import query
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

__all__ = ["LABEL", "open_container", "owner_label", "owner_of", "sweep_containers"]

LABEL = "redteam-forker.owner"
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 2.0
_POLL_S = 0.1
_LOCAL = ("localhost", "127.0.0.1", "::1", "localnpipe")
_IN_A_CONTAINER = ("/.dockerenv", "/run/.containerenv")
_SHARED_MEMORY = "256m"  # the default of 64 MB is too small for PostgreSQL's shared segments (P91)
_HBA_PLACE = "/etc/redteam-forker/pg_hba.conf"
_TAIL_LINES = 6


@contextlib.asynccontextmanager
async def open_container(image: str) -> AsyncIterator[Cluster]:
    """Run a container with PostgreSQL, and remove it in the end, also when cancelled.

    Args:
        image: its name; it is pulled if the engine does not have it.

    Raises:
        UsageError: the optional packages are not installed.
        ServerUnavailable: no engine answers, there is no such image, or PostgreSQL does not start in it; the
        message holds the container's own last lines.
    """
    await anyio.to_thread.run_sync(_check_installed)
    password = secrets.token_urlsafe(32)
    # Pulling may take minutes and makes nothing of ours, so a cancelled caller does not wait for it.
    await anyio.to_thread.run_sync(_prepare, image, abandon_on_cancel=True)
    with anyio.CancelScope(shield=True):  # what a cancelled start has made is to be known, and removed
        container = await anyio.to_thread.run_sync(_start, image, password)
    try:
        cluster = await _ready(container, image, password)
        try:
            yield cluster
        finally:
            await cluster.aclose()
    finally:
        with anyio.move_on_after(_STOP_TIMEOUT_S, shield=True):
            await anyio.to_thread.run_sync(_remove, container)


def _check_installed() -> None:
    if importlib.util.find_spec("testcontainers") is None or importlib.util.find_spec("docker") is None:
        raise UsageError(
            "a server in a container needs the package testcontainers, which is not installed; "
            "run pip install 'redteam-forker[docker]'"
        )


def _module(name: str) -> Any:
    """Import one of the optional packages' modules: late, and without the types that they may not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)


@contextlib.contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Turn what the engine's client raises into ours."""
    errors = _module("docker.errors")
    try:
        yield
    except errors.ImageNotFound as error:
        raise ServerUnavailable(f"{doing}: there is no such image") from error
    except errors.APIError as error:
        raise ServerUnavailable(f"{doing}: {error.explanation or error}") from error
    except (errors.DockerException, OSError) as error:  # what requests raises is an OSError
        raise ServerUnavailable(
            f"{doing}: no Docker engine answers ({type(error).__name__}); start one, set DOCKER_HOST, "
            "or use the embedded server, which needs none"
        ) from error


def _prepare(image: str) -> None:
    """Make sure of the engine and the image, and remove what killed owners left."""
    with _translated(f"cannot run image {image!r}"), contextlib.closing(_client()) as client:
        host = urllib.parse.urlsplit(client.api.base_url).hostname
        if host not in _LOCAL:
            raise ServerUnavailable(
                f"the Docker engine is on another machine ({host}), which alone would reach what we start; "
                "start PostgreSQL there, and name it by its DSN"
            )
        sweep_containers(client)
        try:
            client.images.get(image)
        except _module("docker.errors").ImageNotFound:
            client.images.pull(image)


def _client() -> Any:
    return _module("testcontainers.core.docker_client").DockerClient().client


def _start(image: str, password: str) -> Any:
    postgres = _module("testcontainers.community.postgres")
    _module("testcontainers.core.config").testcontainers_config.ryuk_disabled = True
    with _translated(f"cannot run image {image!r}"):
        container = postgres.PostgresContainer(
            image, username=settings.ADMIN, password=password, dbname="postgres", driver=None
        )
        # Its own way to find out whether it is ready would run programs in the container (P90).
        container.waiting_for(None)
        container._connect = lambda: None  # noqa: SLF001 - there is no other way to leave it out
        # Not on every interface of the machine, as a plain port would be.
        container.ports = {str(settings.PORT): ("127.0.0.1", None)}
        container.with_env("POSTGRES_INITDB_ARGS", "--no-sync --auth=scram-sha-256")
        container.with_command(["postgres", *settings.command_flags(), "-c", f"hba_file={_HBA_PLACE}"])
        container.with_copy_into_container(settings.CONTAINER_HBA.encode(), _HBA_PLACE, 0o644)
        # A child that is orphaned would otherwise become PostgreSQL's, which takes its end for a crash (P90).
        container.with_kwargs(init=True, shm_size=_SHARED_MEMORY, labels={LABEL: owner_label()})
        try:
            return container.start()
        except (_module("docker.errors").DockerException, OSError):
            _remove(container)
            raise


def _remove(container: Any) -> None:
    """Remove it and its data."""
    gone = _module("docker.errors").NotFound
    with _translated("cannot remove the container of a server"), contextlib.suppress(gone):
        container.stop(force=True, delete_volume=True)


async def _ready(container: Any, image: str, password: str) -> Cluster:
    """Wait until PostgreSQL answers over the network, twice.

    An official image first runs a server for its own set-up, without network, while the engine accepts
    connections for a server that is not there yet (P89).
    """
    with anyio.move_on_after(_START_TIMEOUT_S):
        while True:
            for host, port in await anyio.to_thread.run_sync(_looked_at, container, image):
                target = _pg.Target(
                    host=host,
                    port=port,
                    user=settings.ADMIN,
                    password=password,
                    maintenance="postgres",
                    sslmode="disable",
                )
                if await _answers(target) and (row := await _answers(target)):
                    return await _cluster(row, target, image)
            await anyio.sleep(_POLL_S)
    raise ServerUnavailable(
        f"PostgreSQL in image {image!r} was not ready after {_START_TIMEOUT_S:.0f} s; "
        f"its last lines: {await anyio.to_thread.run_sync(_tail, container)}",
        retryable=True,
    )


async def _answers(target: _pg.Target) -> Mapping[str, object] | None:
    """The row of `server_facts`, or None if the server is not there yet."""
    try:
        with _pg.translated("cannot use the container's server", ServerUnavailable):
            with anyio.fail_after(_ANSWER_TIMEOUT_S):
                connection = await _pg.connect(target)
            try:
                row: Mapping[str, object] = await connection.fetchrow(query("server_facts"))
            finally:
                await _pg.close(connection)
    except ServerUnavailable as error:
        if isinstance(error.__cause__, (*_pg.NOT_YET, TimeoutError)):
            return None
        raise
    return row


async def _cluster(row: Mapping[str, object], target: _pg.Target, image: str) -> Cluster:
    missing = existing.missing_rights(row, role=settings.ADMIN)
    if missing:
        raise ServerUnavailable(f"image {image!r} cannot hold forks: {'; '.join(missing)}")
    facts = facts_of(row, target, kind="docker", placement=f"a volume of a container of image {image}")
    cluster = Cluster(facts=facts, target=target, psql=binaries.installed() / binaries.PSQL)
    await cluster.close_to_public()
    return cluster


def _looked_at(container: Any, image: str) -> list[tuple[str, int]]:
    """Where its server may be reached: at this machine's port, or, from a container, at its own address.

    Raises:
        ServerUnavailable: it has ended.
    """
    with _translated(f"cannot use image {image!r}"):
        wrapped = container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status in ("exited", "dead"):
            raise ServerUnavailable(f"PostgreSQL does not start in image {image!r}: {_tail(container)}")
        network = wrapped.attrs["NetworkSettings"]
    published = network["Ports"].get(f"{settings.PORT}/tcp") or ()
    addresses = [("127.0.0.1", int(binding["HostPort"])) for binding in published]
    if any(Path(sign).exists() for sign in _IN_A_CONTAINER):
        own = [entry["IPAddress"] for entry in network["Networks"].values()]
        addresses += [(address, settings.PORT) for address in own if address]
    return addresses


def _tail(container: Any) -> str:
    out, err = container.get_logs()
    lines = (out + err).decode("utf-8", "replace").strip().splitlines()
    return "\n".join(lines[-_TAIL_LINES:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that started a container.

    Attributes:
        boot: the start of its machine, and
        namespace: the set of process ids that `pid` is one of; elsewhere, it says nothing.
        pid: its process id.
        started: when it was started, in the kernel's own count, since ids are used again.
    """

    boot: str
    namespace: str
    pid: int
    started: str

    @property
    def is_known_gone(self) -> bool:
        """Whether it can be seen from here that it runs no more."""
        here = owner_of(owner_label())
        if here is None or not here.boot or (here.boot, here.namespace) != (self.boot, self.namespace):
            return False
        return _started(self.pid) != self.started


def owner_label(pid: int | None = None) -> str:
    """A label's value that names a process of this machine; ourselves if none is given."""
    pid = os.getpid() if pid is None else pid
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")
    return " ".join((state.boot_id() or "-", namespace or "-", str(pid), _started(pid) or "-"))


def owner_of(label: str) -> Owner | None:
    """Read a label's value; None if it is not one of ours."""
    parts = label.split(" ")
    if len(parts) != 4 or not parts[2].isdigit():
        return None
    boot, namespace, pid, started = ("" if part == "-" else part for part in parts)
    return Owner(boot=boot, namespace=namespace, pid=int(pid), started=started)


def _started(pid: int) -> str:
    """When a process was started; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def sweep_containers(client: Any) -> list[str]:
    """Remove the containers whose owners are gone (P88); those of other machines are left alone.

    Args:
        client: of the engine.

    Returns:
        The ids of those that were removed.
    """
    errors = _module("docker.errors")
    swept = []
    for container in client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True):
        owner = owner_of(container.labels.get(LABEL, ""))
        if owner is not None and owner.is_known_gone:
            # Somebody else may be sweeping as well.
            with contextlib.suppress(errors.APIError):
                container.remove(force=True, v=True)
                swept.append(str(container.id))
    return swept

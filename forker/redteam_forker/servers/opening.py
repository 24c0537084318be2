"""One door for every kind of server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_forker.servers.container import open_container
from redteam_forker.servers.embedded import Embedded, open_embedded
from redteam_forker.servers.existing import open_existing
from redteam_forker.servers.shared import open_shared
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from redteam_forker.servers.server import Server

__all__ = ["open_server"]


def open_server(
    dsn: str | None = None,
    *,
    data_root: Path | None = None,
    run_as: str | None = None,
    docker: str | None = None,
    shared: Path | None = None,
    allow_databases: Collection[str] = (),
) -> AbstractAsyncContextManager[Server]:
    """A server to make templates and forks on, for as long as the context manager is open.

    Args:
        dsn: `postgresql://user:password@host:port/database` of a server that runs; None starts an embedded
        one.
        data_root: for an embedded server, the directory its data goes to; None chooses.
        run_as: for an embedded server in a root session, the user it runs as; None chooses.
        docker: an image with PostgreSQL, for example `postgres:18`, to be run in a container.
        shared: for an embedded server, the folder that keeps it: one cluster for all who name the same
        folder, whose data is there again the next time. None is a new cluster that is removed in the end.
        allow_databases: on a server named by its DSN, databases that are not ours and that forks' roles may
        be able to enter all the same; any other is refused.

    Raises:
        UsageError: an argument cannot work (on entering).
        ServerUnavailable: the server cannot be started or reached, or lacks something (on entering).
    """
    if allow_databases and dsn is None:
        raise UsageError(
            "databases are allowed by name on a server that is named by its DSN; on any other, forks' roles "
            "can enter none but their own"
        )
    if dsn is None and docker is None:
        options = Embedded(data_root=data_root, run_as=run_as)
        return open_embedded(options) if shared is None else open_shared(options, shared)
    if data_root is not None or run_as is not None or shared is not None:
        raise UsageError(
            "a data root, a user to run as and a shared folder are for the embedded server; "
            "leave them out with a DSN or a container"
        )
    if docker is not None:
        if dsn is not None:
            raise UsageError("a DSN and a container's image name two servers; leave one of them out")
        return open_container(docker)
    assert dsn is not None
    return open_existing(dsn, allow_databases=allow_databases)

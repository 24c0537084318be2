"""One door for every kind of server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_forker.servers.embedded import Embedded, open_embedded
from redteam_forker.servers.existing import open_existing
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from redteam_forker.servers.server import Server

__all__ = ["open_server"]


def open_server(
    dsn: str | None = None, *, data_root: Path | None = None, run_as: str | None = None
) -> AbstractAsyncContextManager[Server]:
    """A server to make templates and forks on, for as long as the context manager is open.

    Args:
        dsn: `postgresql://user:password@host:port/database` of a server that runs; None starts an embedded
        one.
        data_root: for an embedded server, the directory its data goes to; None chooses.
        run_as: for an embedded server in a root session, the user it runs as; None chooses.

    Raises:
        UsageError: an argument cannot work (on entering).
        ServerUnavailable: the server cannot be started or reached, or lacks something (on entering).
    """
    if dsn is None:
        return open_embedded(Embedded(data_root=data_root, run_as=run_as))
    if data_root is not None or run_as is not None:
        raise UsageError(
            "a data root and a user to run as are for the embedded server; leave them out with a DSN"
        )
    return open_existing(dsn)

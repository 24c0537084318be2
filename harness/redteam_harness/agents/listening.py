"""Where the collector listens. Apart from the collector itself, which is heavy and seldom wanted."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CollectorAddress", "listening"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorAddress:
    """Where the collector listens, and how services name it.

    Attributes:
        host: the address to listen on.
        port: 0 takes a free one.
        url: the origin under which services reach it, or None where that is `http://host:port`.
    """

    host: str = "127.0.0.1"
    port: int = 0
    url: str | None = None


@contextlib.contextmanager
def listening(address: CollectorAddress) -> Iterator[socket.socket]:
    """A socket at the address, for as long as the block runs.

    Raises:
        UsageError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.host, address.port))
        except OSError as error:
            raise UsageError(
                f"the collector cannot listen on {address.host}:{address.port}: {error.strerror or error}; "
                "give another address with --collector"
            ) from None
        yield listener

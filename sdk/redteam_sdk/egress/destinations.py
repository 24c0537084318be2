"""Which hosts, ports and Unix sockets a process may reach. No I/O: names come with their addresses."""

from __future__ import annotations

import ipaddress
import re
import time
from typing import TYPE_CHECKING, NamedTuple

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Destination", "Destinations", "normal", "parse_destination"]

# How long an address may be used after its name was looked up. Clients keep them, seldom for longer.
_ADDRESS_S = 300.0
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_][a-z0-9_-]{0,62}(\.[a-z0-9_][a-z0-9_-]{0,62})*", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]")


class Destination(NamedTuple):
    """One place that may be reached. A host that begins with a slash is a Unix socket, or their directory."""

    host: str
    port: int | None


def parse_destination(text: str) -> Destination:
    """Read `host`, `host:port`, `[IPv6]:port`, or the path of a Unix socket or of a directory of them.

    Raises:
        UsageError: it is none of these.
    """
    if text.startswith("/"):
        return Destination(text.rstrip("/") or "/", None)
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text, re.DOTALL)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    elif text.count(":") == 1:
        host, port = text.split(":")
    else:
        host, port = text, None
    # Only an address stands in brackets.
    is_host = _address(host) is not None or (not bracketed and _NAME.fullmatch(normal(host)))
    if not is_host or not (port is None or _PORT.fullmatch(port)):
        raise UsageError(
            f"{text!r} is no destination: write host, host:port, [IPv6]:port or the path of a Unix socket,"
            " for example api.example.com:443; addresses of pages and wildcards are none"
        )
    return Destination(normal(host), int(port) if port is not None else None)


def normal(host: str) -> str:
    """The one spelling by which a name or an address is compared."""
    address = _address(host)
    if address is not None:
        return str(address)
    name = host.rstrip(".").lower()
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode("ascii")
    except UnicodeError:
        return name  # no name that could be looked up, and none that is allowed


class Destinations:
    """What may be reached. Any thread may ask and add.

    Args:
        allowed: see `parse_destination`.
        clock: seconds that only grow.
    """

    def __init__(self, allowed: Iterable[str] = (), *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ports: dict[str, frozenset[int | None]] = {}
        self._paths: set[str] = set()
        # Address -> the allowed names that it was an answer for, and until when that counts.
        self._answers: dict[str, dict[str, float]] = {}
        self._clock = clock
        for text in allowed:
            self.add(*parse_destination(text))

    def add(self, host: str, port: int | None) -> None:
        """Allow a host at a port (None: at any), or the path of a Unix socket or a directory of them."""
        if host.startswith("/"):
            self._paths.add(host)
            return
        hosts = ("localhost", "127.0.0.1", "::1") if normal(host) == "localhost" else (normal(host),)
        for one in hosts:
            self._ports[one] = self._ports.get(one, frozenset()) | {port}

    def may_connect(self, host: str, port: int | None) -> bool:
        """Whether a name, or an address, may be connected to at a port."""
        # To connect to "any address" is to connect to this machine.
        where = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host) or normal(host)  # noqa: S104
        if self._permits(where, port):
            return True
        now = self._clock()
        names = list(self._answers.get(where, {}).items())
        return any(until > now and self._permits(name, port) for name, until in names)

    def may_open(self, path: str) -> bool:
        """Whether a Unix socket may be connected to."""
        return path in self._paths or (path.startswith("/") and path.rpartition("/")[0] in self._paths)

    def may_look_up(self, host: str) -> bool:
        """Whether a name may be asked for, at a name server or elsewhere. An address needs no question."""
        name = normal(host)
        return name in ("", "localhost") or _address(host) is not None or name in self._ports

    def may_look_back(self, address: str) -> bool:
        """Whether the name of an address may be asked for."""
        found = _address(address)
        return found is None or found.is_loopback or found.is_unspecified or self._is_known(str(found))

    def learn(self, name: str, addresses: Iterable[str]) -> None:
        """Allow the addresses that an allowed name has just been answered with, for a while."""
        known, now = normal(name), self._clock()
        if known not in self._ports:
            return
        for address, names in list(self._answers.items()):
            for one in [one for one, until in list(names.items()) if until <= now]:
                names.pop(one, None)
            if not names:
                self._answers.pop(address, None)
        for text in addresses:
            address_ = _address(text)
            # A name that leads to a cloud's metadata service is no ordinary service's name.
            if address_ is not None and not address_.is_link_local and not address_.is_multicast:
                self._answers.setdefault(str(address_), {})[known] = now + _ADDRESS_S

    def _permits(self, host: str, port: int | None) -> bool:
        ports = self._ports.get(host, frozenset())
        return None in ports or port in ports

    def _is_known(self, address: str) -> bool:
        return address in self._ports or address in self._answers


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text spells, without its zone; IPv4 in IPv6's clothes is IPv4."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found

"""Guards the clients that connect in C and have one way there in Python: psycopg 3, and uvloop's loops."""

from __future__ import annotations

import functools
import os
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

from redteam_sdk.egress.imports import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

__all__ = ["Checks", "watch"]


class Checks(Protocol):
    """What is asked before something is done; each raises to refuse it."""

    def connect(self, host: str, port: int | None) -> None:
        """A connection. A host that begins with a slash is the whole path of a Unix socket."""
        ...

    def look_up(self, host: object, port: object = None) -> None:
        """A look-up of a name."""
        ...

    def look_back(self, address: object) -> None:
        """A look-up of an address's name."""
        ...

    def start(self, program: object) -> None:
        """A program."""
        ...


def watch(checks: Checks) -> list[Callable[[], None]]:
    """Have the checks made, also by what is imported later; returns what undoes it."""
    return [
        when_imported("psycopg.generators", functools.partial(_wrap_psycopg, checks=checks)),
        when_imported("uvloop", functools.partial(_wrap_uvloop, checks=checks)),
    ]


# psycopg: `generators.connect` is what every connection goes through ------------------------------------


def _wrap_psycopg(module: ModuleType, *, checks: Checks) -> Callable[[], None]:
    original: Any = module.connect

    @functools.wraps(original)
    def connect(conninfo: str, *args: Any, **kwargs: Any) -> Any:
        for host, port in _servers(conninfo):
            checks.connect(host, port)
        return original(conninfo, *args, **kwargs)

    module.connect = connect  # type: ignore[attr-defined]

    def undo() -> None:
        module.connect = original  # type: ignore[attr-defined]

    return undo


def _servers(conninfo: str) -> Iterator[tuple[str, int | None]]:
    """Where libpq would connect to, in the order in which it decides: the text, the environment, its own."""
    from psycopg import pq

    given = {option.keyword: option.val for option in pq.Conninfo.parse(conninfo.encode())}
    defaults = {option.keyword: option.val for option in pq.Conninfo.get_defaults()}

    def value(name: bytes) -> str:
        # What is given as empty text is given: the environment has no say in it then.
        stated = given.get(name)
        found = defaults.get(name) if stated is None else stated
        return (found or b"").decode(errors="surrogateescape")

    if service := value(b"service"):
        # A service file may say anything; it is not ours to read.
        yield f"service={service}", None
    hosts = (value(b"hostaddr") or value(b"host")).split(",")
    ports = value(b"port").split(",")
    for host, port in zip_longest(hosts, ports[: len(hosts)], fillvalue=ports[0]):
        number = int(port) if port.isdecimal() else None
        if host.startswith("/"):
            yield f"{host}/.s.PGSQL.{number}", None
        else:
            yield host or "libpq's default socket directory", number


# uvloop: its loops' methods, before they hand over to libuv -----------------------------------------------


def _wrap_uvloop(module: ModuleType, *, checks: Checks) -> Callable[[], None]:
    loop = module.Loop

    def connection(_factory: object, host: Any = None, port: Any = None, **_options: Any) -> None:
        if host is not None:
            checks.connect(_text(host), port if isinstance(port, int) else None)

    def unix(_factory: object, path: Any = None, **_options: Any) -> None:
        if path is not None:
            checks.connect(os.path.abspath(_text(path)), None)

    def datagrams(_factory: object, _local: Any = None, remote_addr: Any = None, **_options: Any) -> None:
        if remote_addr is not None:
            checks.connect(_text(remote_addr[0]), int(remote_addr[1]))

    def program(_factory: object, program: Any, *_rest: Any, **_options: Any) -> None:
        checks.start(program)

    before: dict[str, Callable[..., None]] = {
        "create_connection": connection,
        "create_unix_connection": unix,
        "create_datagram_endpoint": datagrams,
        "getaddrinfo": lambda host, port=None, **_options: checks.look_up(host, port),
        "getnameinfo": lambda address, *_flags: checks.look_back(address),
        "subprocess_exec": program,
        "subprocess_shell": program,
    }
    for name, check in before.items():
        setattr(loop, name, _checked(getattr(loop, name), check))

    def undo() -> None:
        for name in before:
            delattr(loop, name)  # what it inherits comes to light again

    return undo


def _checked(original: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(*args, **kwargs)
        return await original(self, *args, **kwargs)

    return method


def _text(value: Any) -> str:
    return os.fsdecode(value)

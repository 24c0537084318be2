"""Refuses connections and look-ups of an armed process, before a byte or a question has left it.

An audit hook sees every `connect`, `sendto` and look-up that Python code makes, also through functions that
it took hold of earlier. A hook cannot be removed; after `stop` it returns at once. Beside it a few functions
are wrapped: sockets, which would look a name up before the hook is asked; look-ups, whose answers have to be
known; and the event loop's look-ups, which run in a thread where nothing is known of the conversation.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import socket
import sys
from asyncio import base_events
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit
from weakref import WeakSet

from redteam_sdk import record
from redteam_sdk.egress import native
from redteam_sdk.egress.destinations import Destinations, normal
from redteam_sdk.errors import EgressRefused, EnvironmentFault
from redteam_sdk.faults import record_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from types import FrameType

    from redteam_sdk.claims import Context

__all__ = ["admit_context", "is_on", "start", "stop"]

_INTERNET = (socket.AF_INET, socket.AF_INET6)
# Netlink and the kernel's ciphers do not leave the machine. -1: the family is that of a descriptor.
_LOCAL = [getattr(socket, name) for name in ("AF_NETLINK", "AF_ALG") if hasattr(socket, name)]
_FAMILIES = frozenset({*_INTERNET, socket.AF_UNIX, socket.AF_UNSPEC, -1, *_LOCAL})
_PROOF = "redteam_sdk.egress"
_DEFAULT_PORTS = {"http": 80, "https": 443}

_log = logging.getLogger(__name__)

_state: Destinations | None = None
# Fork servers and collectors that verified contexts named. Kept when the process is armed again.
_admitted: set[tuple[str, int | None]] = set()
# What this process itself listens on is not outside.
_bound_sockets: WeakSet[socket.socket] = WeakSet()
_bound_paths: set[str] = set()
_undo: list[Callable[[], None]] = []
_hooked = _proven = False


def start(allowed: Iterable[str]) -> None:
    """Guard this process; again: with other destinations.

    Args:
        allowed: see `destinations.parse_destination`.

    Raises:
        EnvironmentFault: another audit hook of this process does not let ours in.
    """
    global _state, _hooked
    state = Destinations(allowed)
    state.add(socket.gethostname(), 0)  # may be looked up, as mail clients do to say hello; port 0 is none
    for host, port in _admitted:
        state.add(host, port)
    _state = state
    if not _hooked:
        sys.addaudithook(_hook)
        sys.audit(_PROOF)
        if not _proven:
            raise EnvironmentFault(
                "the egress guard could not be installed: another audit hook of this process refuses it"
            )
        _hooked = True
    if not _undo:
        _wrap_all()


def stop() -> None:
    """Guard nothing any more."""
    global _state
    _state = None
    _admitted.clear()
    while _undo:
        _undo.pop()()


def is_on() -> bool:
    """Whether this process is guarded."""
    return _state is not None


def admit_context(context: Context) -> None:
    """Allow what a verified context names: its fork's server, and its collector; nothing if not guarded.

    They stay allowed, to the whole process: pools connect in threads where no context is bound. What keeps
    one conversation out of another's fork is the fork's secret.
    """
    if context.host.startswith("/"):
        _admit(f"{context.host}/.s.PGSQL.{context.port}", None)
    else:
        _admit(context.host, context.port)
    if context.collector is not None:
        origin = urlsplit(context.collector)
        _admit(origin.hostname or "", origin.port or _DEFAULT_PORTS.get(origin.scheme))


def _admit(host: str, port: int | None) -> None:
    if _state is not None and (host, port) not in _admitted:
        _admitted.add((host, port))
        _state.add(host, port)


def _refuse(host: str, port: int | None, *, look_up: bool = False) -> NoReturn:
    error = EgressRefused(host, port, look_up=look_up)
    record_fault(error)
    if not record.is_recording():
        # In a thread that lost its context there is no conversation to tell; the log at least has it.
        _log.warning("%s", error)
    raise error


# The hook ---------------------------------------------------------------------------------------------


def _hook(event: str, args: tuple[Any, ...]) -> None:
    state = _state
    if state is None:
        return
    see = _SEES.get(event)
    if see is not None:
        see(state, *args)


def _see_proof(_state: Destinations, *_rest: object) -> None:
    global _proven
    _proven = True


def _see_new(_state: Destinations, _socket: object, family: int, *_rest: object) -> None:
    if family not in _FAMILIES:
        _refuse(f"a socket of family {int(family)}", None)


def _see_connect(state: Destinations, sock: socket.socket, address: Any, *_rest: object) -> None:
    try:
        _see_send(state, sock, address)
    except EgressRefused:
        if sock.type == socket.SOCK_STREAM:
            sock.close()  # clients close what failed with an OSError; this is none, and it would leak
        raise


def _see_send(state: Destinations, sock: socket.socket, address: Any, *_rest: object) -> None:
    if address is None:  # sendmsg on a connected socket
        return
    family = sock.family
    if family == socket.AF_UNIX:
        path = _text(address)
        if not state.may_open(path) and path not in _bound_paths:
            _refuse(path.replace("\0", "@"), None)
    elif family in _INTERNET:
        host, port = _text(address[0]), int(address[1])
        if not state.may_connect(host, port) and not _is_own(sock.type, host, port):
            _refuse(host, port)


def _see_bind(_state: Destinations, sock: socket.socket, address: Any, *_rest: object) -> None:
    if sock.family == socket.AF_UNIX:
        _bound_paths.add(_text(address))
    elif sock.family in _INTERNET and isinstance(sock, socket.socket):
        _bound_sockets.add(sock)


def _see_look_up(state: Destinations, host: Any, port: Any = None, *_rest: object) -> None:
    if host is not None and not state.may_look_up(_text(host)):
        _refuse(_text(host), port if isinstance(port, int) else None, look_up=True)


def _see_look_back(state: Destinations, where: Any, *_rest: object) -> None:
    host = _text(where[0] if isinstance(where, tuple) else where)
    if not (state.may_look_back(host) and state.may_look_up(host)):
        _refuse(host, None, look_up=True)


def _see_program(_state: Destinations, program: Any, *_rest: object) -> None:
    # A child process is not guarded, and refusing it would stop much that is harmless: it is evidence.
    # The name alone: arguments hold what programs should not be told aloud.
    name = program if isinstance(program, str | bytes | os.PathLike) else (program or ["?"])[0]
    record.emit("subprocess", program=os.fsdecode(name).split(maxsplit=1)[0] if name else "?")


def _see_spawn(state: Destinations, program: Any, *rest: object) -> None:
    # subprocess spawns some of its programs this way, from Python 3.13 on nearly all, and told it already.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who called is what is asked
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__") != "subprocess":
        _see_program(state, program, *rest)


_SEES: dict[str, Callable[..., None]] = {
    _PROOF: _see_proof,
    "socket.__new__": _see_new,
    "socket.connect": _see_connect,
    "socket.sendto": _see_send,
    "socket.sendmsg": _see_send,
    "socket.bind": _see_bind,
    "socket.getaddrinfo": _see_look_up,
    "socket.gethostbyname": _see_look_up,
    "socket.gethostbyaddr": _see_look_back,
    "socket.getnameinfo": _see_look_back,
    "subprocess.Popen": _see_program,
    "os.system": _see_program,
    "os.posix_spawn": _see_spawn,
    "pty.spawn": _see_program,
}


def _text(host: Any) -> str:
    if isinstance(host, bytes | bytearray):
        return host.decode("utf-8", "surrogateescape")
    return str(host)


def _is_own(kind: int, host: str, port: int) -> bool:
    """Whether this very process listens there."""
    where = normal(host)
    for sock in list(_bound_sockets):
        try:
            bound = sock.getsockname()
        except OSError:
            continue  # closed
        if sock.type == kind and bound[1] == port and normal(bound[0]) in (where, "0.0.0.0", "::"):  # noqa: S104
            return where.startswith("127.") or where == "::1" or normal(bound[0]) == where
    return False


class _Checks:
    """The same for clients that connect in C."""

    def connect(self, host: str, port: int | None) -> None:
        state = _state
        if state is None or (state.may_open(host) if host.startswith("/") else state.may_connect(host, port)):
            return
        if port is None or not _is_own(socket.SOCK_STREAM, host, port):
            _refuse(host, port)

    def look_up(self, host: object, port: object = None) -> None:
        if _state is not None:
            _see_look_up(_state, host, port)

    def look_back(self, address: object) -> None:
        if _state is not None:
            _see_look_back(_state, address)

    def start(self, program: object) -> None:
        if _state is not None:
            _see_program(_state, program)


# The wrappers -----------------------------------------------------------------------------------------


def _wrap_all() -> None:
    for name, address_at in (("connect", 0), ("connect_ex", 0), ("bind", 0), ("sendto", -1), ("sendmsg", 3)):
        _wrap(socket.socket, name, functools.partial(_name_checked, address_at=address_at))
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        _wrap(socket, name, _learning)
    _wrap(base_events.BaseEventLoop, "getaddrinfo", functools.partial(_asked_here, see=_see_look_up))
    _wrap(base_events.BaseEventLoop, "getnameinfo", functools.partial(_asked_here, see=_see_look_back))
    _undo.extend(native.watch(_Checks()))


def _wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    original, is_its_own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, functools.wraps(original)(make(original)))
    _undo.append(lambda: setattr(owner, name, original) if is_its_own else delattr(owner, name))


def _name_checked(original: Callable[..., Any], *, address_at: int) -> Callable[..., Any]:
    """A socket's method: C code would look a name up, and only then ask the hook."""

    def method(self: socket.socket, *args: Any) -> Any:
        state = _state
        if state is not None and self.family in _INTERNET and len(args) > address_at:
            address = args[address_at]
            if isinstance(address, tuple) and address and not state.may_look_up(_text(address[0])):
                _refuse(_text(address[0]), address[1] if len(address) > 1 else None)
        return original(self, *args)

    return method


def _learning(original: Callable[..., Any]) -> Callable[..., Any]:
    """A look-up whose answers may then be connected to, if the name is allowed."""

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(host, *args, **kwargs)
        state = _state
        if state is not None and host is not None:
            state.learn(_text(host), _addresses(answer))
        return answer

    return look_up


def _addresses(answer: Any) -> Iterable[str]:
    if isinstance(answer, str):  # gethostbyname
        return [answer]
    if isinstance(answer, tuple):  # gethostbyname_ex
        return list(answer[2])
    return [str(entry[4][0]) for entry in answer]


def _asked_here(original: Callable[..., Awaitable[Any]], *, see: Callable[..., None]) -> Callable[..., Any]:
    """An event loop's look-up: refused in the task that asks, whose conversation is known."""

    async def look_up(self: asyncio.AbstractEventLoop, *args: Any, **kwargs: Any) -> Any:
        state = _state
        if state is not None and args:
            see(state, *args)
        return await original(self, *args, **kwargs)

    return look_up

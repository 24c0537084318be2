"""JSON lines over the socket that the harness holds the other end of. Its end is the process's end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from redteam_sdk.redact import STRUCK, spellings

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PROTOCOL_VERSION", "Channel", "leave"]

PROTOCOL_VERSION = 1

# A shorter text would be struck out of ordinary words; the secrets that the platform makes are far longer.
_MIN_SECRET = 8


class Channel:
    """Both directions of the socket. Any thread may send; it blocks until the kernel has taken the line."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._socket.setblocking(True)
        self._pid = os.getpid()
        self._secrets: frozenset[str] = frozenset()
        # Guards the order of bytes on the socket, and the set of secrets.
        self._lock = threading.Lock()
        # A process that the agent forks must not hold the socket open, nor speak on it.
        os.register_at_fork(after_in_child=self._let_go)

    def start(self, deliver: Callable[[dict[str, Any]], None]) -> None:
        """Read requests in a thread of their own and hand each to `deliver`, which must not block.

        When the harness closes its end, or dies, this process ends at once, whatever its event loop does.
        """
        threading.Thread(target=self._read, args=(deliver,), name="redteam-serve-reader", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. Secrets that were named to `hide` are struck out of it, wherever they stand."""
        if os.getpid() != self._pid:
            return
        line = json.dumps(message, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        with self._lock:
            for secret in self._secrets:
                line = line.replace(secret, STRUCK)
            try:
                # Half a character pair cannot be UTF-8; it only ever stands in somebody's error message.
                self._socket.sendall(line.encode(errors="replace") + b"\n")
            except OSError:
                leave(0)  # the harness is gone, and with it the reason for this process

    def hide(self, secret: str) -> None:
        """Strike this text out of everything that is sent from now on, also in its JSON and URL spellings."""
        if len(secret) >= _MIN_SECRET:
            with self._lock:
                self._secrets |= spellings(secret)

    def unhide(self, secret: str) -> None:
        """Stop to look for a text, once what it opened is gone."""
        with self._lock:
            self._secrets -= spellings(secret)

    def _let_go(self) -> None:
        # socket.close would wait for the reader's file object, whose thread does not exist in the child.
        os.close(self._socket.detach())

    def _read(self, deliver: Callable[[dict[str, Any]], None]) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    request = json.loads(line)
                    if not isinstance(request, dict):
                        raise ValueError("a request is an object")
                    deliver(request)
        except ValueError as error:
            print(f"redteam_sdk.serve: the harness sent no JSON object: {error}", file=sys.__stderr__)
            leave(2)
        except OSError:
            pass  # a socket that breaks has ended
        leave(0, group=True)


def leave(status: int, *, group: bool = False) -> None:
    """End the process now: no handlers, no waiting for threads of the agent that may hang.

    Args:
        status: the exit status.
        group: also end what the agent started, where the process leads a group of its own, as the harness
            starts it. It is then ended by SIGKILL itself.
    """
    for stream in (sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    if group and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(status)

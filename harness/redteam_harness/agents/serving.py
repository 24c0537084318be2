"""`serves:` of a command agent: the program takes lines by HTTP on a port of ours, as its preset says."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.posting import ask, new_client
from redteam_harness.agents.shapes import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.program import Program
    from redteam_harness.agents.shapes import Exchange, Said

__all__ = ["PortSession", "Serving", "free_port"]

_HOST = "127.0.0.1"
_READY_S = 60.0
_RETRY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a program takes lines by HTTP.

    Attributes:
        url: where, with {port} in it.
        exchange: the shape of requests and responses.
        headers: sent with every line; may hold secrets of the service's own.
    """

    url: str
    exchange: Exchange
    headers: Mapping[str, str]


def free_port(taken: set[int]) -> int:
    """A port that nobody listens on, and none that was handed out before; it is added to `taken`."""
    while True:
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            port: int = probe.getsockname()[1]
        if port not in taken:
            taken.add(port)
            return port


class PortSession:
    """One conversation with a program that serves HTTP. `drain` must run in a task group.

    Attributes:
        failed: why the conversation is void, once it is.
    """

    def __init__(
        self, program: Program, opening: Opening, serving: Serving, port: int, *, turn_s: float
    ) -> None:
        self.failed: AgentFault | None = None
        self._program = program
        self._database = opening.fork.name
        self._conversation = opening.conversation
        self._secret = opening.fork.password
        self._serving = serving
        self._port = port
        self._turn_s = turn_s
        self._history: list[Said] = []
        self._client = new_client(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))  # never used: it is plain http

    @property
    def database(self) -> str:
        """What every probe said; see `AgentSession`."""
        return self._database

    async def drain(self) -> None:
        """Read away what the program prints, so that it never waits for a reader."""
        try:
            while True:
                await self._program.receive()
        except EOFError:
            return

    async def ready(self) -> None:
        """Wait until the program listens.

        Raises:
            AgentFault: it ended, or did not listen in time.
        """
        try:
            with anyio.fail_after(_READY_S):
                while not await self._listens():
                    if self._program.ended.is_set():
                        raise AgentFault("crash", f"the program {self._program.end()}")
                    await anyio.sleep(_RETRY_S)
        except TimeoutError:
            raise AgentFault(
                "start",
                f"the program did not listen on port {self._port} within {_READY_S:g} s; does its command "
                "take {port}?",
            ) from None

    async def turn(self, number: int, text: str) -> str:
        """Post the line and read the reply; see `AgentSession`."""
        line = Line(text=text, conversation=self._conversation, turn=number, history=tuple(self._history))
        url = self._serving.url.replace("{port}", str(self._port))
        try:
            answer = await ask(
                self._client,
                "POST",
                url,
                headers=self._serving.headers,
                body=self._serving.exchange.body(line),
                deadline_s=self._turn_s,
            )
        except AgentFault as fault:
            with anyio.move_on_after(1 if fault.cause == "unreachable" else 0):
                await self._program.ended.wait()
            if self._program.ended.is_set():
                fault = AgentFault("crash", f"the program {self._program.end()}")
            self.failed = fault
            raise fault from None
        reply = self._serving.exchange.read(answer.content).replace(self._secret, "[secret]")
        self._history += [("user", text), ("agent", reply)]
        return reply

    async def close(self, *, patience_s: float = 0) -> tuple[str, ...]:
        """End the program; see `AgentSession`."""
        del patience_s  # a server is asked to end at once
        await self._client.aclose()
        await self._program.stop()
        return ()

    async def _listens(self) -> bool:
        try:
            stream = await anyio.connect_tcp(_HOST, self._port)
        except OSError:
            return False
        await stream.aclose()
        return True

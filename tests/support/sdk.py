"""For tests of the SDK: keys, tokens, forks as the SDK sees them, and the harness's end of a process."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from redteam_sdk import db
from redteam_sdk.claims import Context, to_claims
from redteam_sdk.context import ALGORITHM, Trust, arm, disarm
from support.databases import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from redteam_forker.servers import Server

__all__ = [
    "AgentProcess",
    "Minter",
    "agent_process",
    "armed",
    "context_for",
    "fork",
    "production",
    "unconfigured",
]

ISSUER, AUDIENCE, KID = "redteam-harness", "clinic", "key-1"


@dataclass(frozen=True)
class Minter:
    """Signs tokens as the harness does."""

    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    def public_pem(self) -> str:
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def trust(self, *hosts: str) -> Trust:
        """Trusts this key. A test plays client, service and server in one process: they may talk."""
        here = {"localhost", *(host for host in hosts if host.startswith("/"))}
        return Trust(
            issuer=ISSUER,
            audience=AUDIENCE,
            keys={KID: self.public_pem()},
            hosts=frozenset(hosts),
            egress=frozenset(here),
        )

    def mint(self, context: Context, *, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """A token; a claim given as None is left out, and other claims and headers replace ours."""
        merged = {**to_claims(context, issuer=ISSUER, audience=AUDIENCE), **claims}
        payload = {name: value for name, value in merged.items() if value is not None}
        # Signed as bytes: PyJWT's own claims check would refuse to make the odd ones.
        data = json.dumps(payload).encode()
        return jwt.PyJWS().encode(data, self.key, ALGORITHM, headers={"kid": KID, **(headers or {})})


def context_for(**facts: Any) -> Context:
    """A context that is valid for an hour."""
    now = datetime.now(UTC).replace(microsecond=0)
    base = Context(
        tenant="t1",
        run="7f3k",
        conversation="c001",
        host="/nowhere",
        port=5432,
        database="rt_fork",
        user="rt_fork",
        password=secrets.token_urlsafe(24),
        not_before=now - timedelta(seconds=1),
        expires_at=now + timedelta(hours=1),
        token_id=secrets.token_hex(8),
    )
    return replace(base, **facts)


@contextlib.contextmanager
def armed(minter: Minter, *hosts: str) -> Iterator[None]:
    """This process armed for the block, as an agent process is for its life."""
    arm(minter.trust(*hosts))
    try:
        yield
    finally:
        disarm()


@contextlib.asynccontextmanager
async def fork(
    server: Server, conversation: str = "c001", sql: str = "", *, sessions: int = 5
) -> AsyncIterator[Context]:
    """A database with a login role of the same name that may do anything in it, as a context."""
    name, password = f"sdk_{secrets.token_hex(8)}", secrets.token_urlsafe(24)
    async with connected(server) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {sessions} PASSWORD '{password}'")
        await admin.execute(f"CREATE DATABASE {name} OWNER {name} STRATEGY FILE_COPY")
        try:
            if sql:
                async with connected(server, name) as session:
                    await session.execute(f"SET ROLE {name}; {sql}")
            yield context_for(
                conversation=conversation,
                host=server.facts.host,
                port=server.facts.port,
                database=name,
                user=name,
                password=password,
            )
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
            await admin.execute(f"DROP ROLE {name}")


@contextlib.contextmanager
def unconfigured() -> Iterator[None]:
    """Production's settings as they were before any test."""
    before = db._production
    db._production = type(before)(None, None)
    try:
        yield
    finally:
        db._production = before


@contextlib.asynccontextmanager
async def production(server: Server) -> AsyncIterator[Context]:
    """A database that plays production, which `db` is configured to use."""
    async with fork(server) as place:
        with unconfigured():
            db.configure(place.dsn())
            try:
                yield place
            finally:
                await db.close()


class AgentProcess:
    """The harness's end of one `python -m redteam_sdk.serve`."""

    def __init__(self, process: anyio.abc.Process, stream: anyio.abc.SocketStream, minter: Minter) -> None:
        self.process = process
        self.minter = minter
        self._stream = stream
        self._rest = b""
        self._number = 0
        self.seen: list[dict[str, Any]] = []

    async def send(self, op: str, **facts: Any) -> int:
        """Send a request and return its id."""
        self._number += 1
        line = json.dumps({"op": op, "id": self._number, **facts}).encode()
        await self._stream.send(line + b"\n")
        return self._number

    async def receive(self) -> dict[str, Any]:
        """The next message, whatever it is; anyio.EndOfStream when the process is gone."""
        while b"\n" not in self._rest:
            self._rest += await self._stream.receive()
        line, self._rest = self._rest.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        self.seen.append(message)
        return message

    async def answer(self, number: int) -> dict[str, Any]:
        """The answer to a request, also when it came already; other messages are kept in `seen`."""
        for message in self.seen:
            if message.get("id") == number:
                return message
        while True:
            message = await self.receive()
            if message.get("id") == number:
                return message

    async def unsolicited(self, op: str) -> dict[str, Any]:
        """The next message of a kind that answers no request."""
        while True:
            message = await self.receive()
            if message["op"] == op:
                return message

    async def ask(self, op: str, **facts: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return await self.answer(await self.send(op, **facts))

    async def arm(
        self, trust: Trust, agent: str | None = None, tools: str | None = None, stall_s: float = 20.0
    ) -> dict[str, Any]:
        """Arm it and return its answer, `armed` or `refused`."""
        await self.send("arm", version=1, trust=trust.to_json(), agent=agent, tools=tools, stall_s=stall_s)
        while True:
            message = await self.receive()
            if message["op"] in ("armed", "refused"):
                return message

    async def open(self, context: Context) -> dict[str, Any]:
        """Open a conversation under a fresh token."""
        return await self.ask("open", conversation=context.conversation, token=self.minter.mint(context))

    async def turn(self, text: str, *, conversation: str = "c001", turn: int = 1) -> dict[str, Any]:
        """One line of the user, and the answer to it."""
        return await self.ask("turn", conversation=conversation, turn=turn, text=text)

    def events(self, conversation: str = "c001") -> list[dict[str, Any]]:
        """The events of a conversation that have come so far."""
        return [m["event"] for m in self.seen if m["op"] == "event" and m["conversation"] == conversation]

    async def hang_up(self) -> int:
        """Close the socket and return the status with which the process ends."""
        await self._stream.aclose()
        return await self.process.wait()


@contextlib.asynccontextmanager
async def agent_process(
    folder: Path, code: str, minter: Minter | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[AgentProcess]:
    """A real agent process in `folder`, whose `agent.py` is `code`."""
    await anyio.Path(folder / "agent.py").write_text(code)
    ours, theirs = socket.socketpair()
    with theirs:
        process = await anyio.open_process(
            [sys.executable, "-m", "redteam_sdk.serve", "--fd", str(theirs.fileno())],
            cwd=folder,
            env={
                **{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ},
                **(env or {}),
            },
            pass_fds=[theirs.fileno()],
            stdin=None,
            stdout=None,
            stderr=None,
        )
    stream = await anyio.abc.SocketStream.from_socket(ours)
    try:
        yield AgentProcess(process, stream, minter or Minter())
    finally:
        await stream.aclose()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(5):
                await process.wait()
            if process.returncode is None:
                process.kill()
            await process.aclose()

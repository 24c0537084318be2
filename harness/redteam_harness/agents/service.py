"""The agent under test as a deployed service: each line is a request that bears the redteam context."""

from __future__ import annotations

import json
import ssl
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
import structlog

from redteam_harness.agents.agent import AgentFault
from redteam_harness.agents.collector import TRACES_PATH
from redteam_harness.agents.posting import ask, new_client
from redteam_harness.agents.shapes import Line
from redteam_sdk.context import HEADER
from redteam_sdk.reporting import REQUEST_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.collector import Collector
    from redteam_harness.agents.inbox import Inbox
    from redteam_harness.agents.posting import Answer
    from redteam_harness.agents.shapes import Exchange, Said
    from redteam_sdk.scripted import ScriptedFault

__all__ = ["Service", "ServiceAgent", "ServiceSession"]

_PROBE_S = 30.0
# The SDK waits up to 5 s for requests that are being served, and some more for connections.
_CLOSE_S = 15.0
_SPANS_S = 10.0

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A deployed service.

    Attributes:
        url: where each line is posted to.
        probe: where the SDK's middleware in front of it answers for itself.
        exchange: the shape of requests and responses.
        headers: sent with every line; may hold secrets of the service's own.
        timeout_s: how long it may take for one line, in seconds.
        spans: whether its OpenTelemetry spans are waited for.
        faults: what external tools are to play in any conversation; the service's code must have them.
    """

    url: str
    probe: str
    exchange: Exchange
    headers: Mapping[str, str]
    timeout_s: float
    spans: bool
    faults: Sequence[ScriptedFault] = ()


class ServiceAgent:
    """Opens conversations with a service.

    Args:
        service: which.
        collector: takes what it reports.
    """

    def __init__(self, service: Service, collector: Collector) -> None:
        self._service = service
        self._collector = collector
        self._verify = ssl.create_default_context()

    async def open(self, opening: Opening) -> ServiceSession:
        """Start a session; see `Agent`. What the service's tools see is asked before anything is said."""
        with ExitStack() as opened:
            inbox = opened.enter_context(
                self._collector.receiving(
                    opening.conversation, opening.token, opening.sink, merge=self._service.spans
                )
            )
            client = new_client(self._verify)
            session = ServiceSession(self._service, opening, self._collector.url, inbox, client)
            try:
                await session.probe()
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await client.aclose()
                raise
            session.until_closed = opened.pop_all()
            return session


class ServiceSession:
    """One conversation with a service.

    Attributes:
        database: see `AgentSession`.
        until_closed: what is open for as long as the session is.
    """

    def __init__(
        self, service: Service, opening: Opening, collector: str, inbox: Inbox, client: httpx2.AsyncClient
    ) -> None:
        self.database = ""
        self.until_closed = ExitStack()
        self._service = service
        self._conversation = opening.conversation
        self._token = {HEADER: opening.token}
        self._collector = collector
        self._inbox = inbox
        self._client = client
        self._history: list[Said] = []

    async def probe(self) -> None:
        """Ask the SDK in front of the service which database its tools see.

        Raises:
            AgentFault: it does not say.
        """
        where = self._service.probe
        try:
            answer = await ask(self._client, "GET", where, headers=self._token, deadline_s=_PROBE_S)
            seen = json.loads(answer.content)
            self.database, known = str(seen["database"]), dict(seen["externals"])
        except AgentFault as fault:
            raise AgentFault(
                fault.cause if fault.cause in ("unreachable", "hang", "refused") else "probe",
                f"nothing was said to the service, as GET {where} names no database of its tools: {fault}"
                + ("" if fault.cause == "refused" else _ADVICE),
            ) from None
        except (ValueError, RecursionError, LookupError, TypeError):
            raise AgentFault(
                "probe", f"GET {where} was answered by something else than the SDK's middleware{_ADVICE}"
            ) from None

        for played in self._service.faults:
            if played.fault not in known.get(played.external, ()):
                raise AgentFault(
                    "externals",
                    f"the service has no external tool {played.external!r} with a fault {played.fault!r}, "
                    "which a case's `externals` names; @external(faults=...) in its code adds one",
                )

    async def turn(self, number: int, text: str) -> str:
        """Post the user's line and read the reply.

        Raises:
            AgentFault: the service failed, its reply cannot be read, or its events did not arrive.
        """
        self._inbox.tell()  # spans that came late, of the turn before
        trace, traceparent = self._inbox.begin(number)
        line = Line(text=text, conversation=self._conversation, turn=number, history=tuple(self._history))
        try:
            answer = await ask(
                self._client,
                "POST",
                self._service.url,
                headers={**self._service.headers, **self._token, "traceparent": traceparent},
                body=self._service.exchange.body(line),
                deadline_s=self._service.timeout_s,
            )
        except AgentFault as fault:
            # A fault of ours that a tool met is why, whatever the service made of it.
            raise self._inbox.fault or fault from None
        if self._inbox.fault is not None:
            raise self._inbox.fault
        self._require_events(answer)
        if self._service.spans:
            await self._require_spans(trace)
        reply = self._service.exchange.read(answer.content)
        self._history += [("user", text), ("agent", reply)]
        return reply

    async def close(self) -> tuple[str, ...]:
        """End the conversation in the service too, whose late requests are waited for, bounded.

        Raises:
            AgentFault: a tool met a fault of ours after the last reply.
        """
        running, known = 0, self._inbox.fault
        try:
            answer = await ask(
                self._client, "DELETE", self._service.probe, headers=self._token, deadline_s=_CLOSE_S
            )
            running = int(json.loads(answer.content)["running"])
        except (AgentFault, ValueError, LookupError, TypeError) as error:
            _log.info("service_not_told_of_the_end", conversation=self._conversation, reason=str(error))
        finally:
            await self._client.aclose()
            self._inbox.tell()
            self.until_closed.close()
        if self._inbox.fault is not known and self._inbox.fault is not None:
            raise self._inbox.fault
        return ("a request that was still being served",) * running

    def _require_events(self, answer: Answer) -> None:
        request = answer.headers.get(REQUEST_HEADER)
        if request is None:
            raise AgentFault(
                "events",
                f"the reply has no header {REQUEST_HEADER}, so nobody knows what the tools did: the SDK's "
                "middleware is not in front of this path, or something between takes the header away",
            )
        if not self._inbox.has_replied(request):
            raise AgentFault(
                "events",
                f"events of this reply did not arrive at the collector {self._collector}, or some are "
                "missing; the service's log says why",
            )

    async def _require_spans(self, trace: str) -> None:
        if not await self._inbox.complete(trace, _SPANS_S):
            raise AgentFault(
                "spans",
                f"no GenAI spans of this request arrived within {_SPANS_S:g} s: the service must take up the "
                f"header traceparent and export to {self._collector}{TRACES_PATH}, sooner than that",
            )
        self._inbox.tell()


_ADVICE = (
    "; put redteam_sdk's middleware in front of the service, outermost, and arm it: docs/agents.md says how"
)

"""What a launch needs beside its forks when the agent is a deployed service: a key it trusts, a collector."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from redteam_harness.agents.listening import CollectorAddress
from redteam_harness.launch.agent_specs import HttpAgent
from redteam_harness.launch.externals import faults_of
from redteam_harness.launch.mint import Mint, SigningKey
from redteam_sdk.claims import is_origin
from redteam_sdk.errors import UsageError
from redteam_sdk.middleware.requests import WELL_KNOWN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from redteam_harness.agents.collector import Collector
    from redteam_harness.agents.service import ServiceAgent
    from redteam_harness.launch.suite import Suite

__all__ = ["Issuing", "ServiceOptions", "issuing", "read_address", "service_agent", "service_trust"]

_MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How a launch deals with a deployed service.

    Attributes:
        signing_key: the file of the key whose public half the service trusts.
        collector: where the service reports to.
    """

    signing_key: Path
    collector: CollectorAddress = field(default_factory=CollectorAddress)


class Issuing(NamedTuple):
    """Who signs a launch's tokens, and the collector that they name, where there is one."""

    mint: Mint
    collector: Collector | None


def read_address(listen: str | None, url: str | None) -> CollectorAddress:
    """The collector's address from `--collector` and `--collector-url`.

    Raises:
        UsageError: they are no address and no origin, or services could not know how to reach it.
    """
    host, port = "127.0.0.1", 0
    if listen is not None:
        host, _, number = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not number.isdecimal() or int(number) > _MAX_PORT:
            raise UsageError(f"--collector {listen!r} is not HOST:PORT, for example 127.0.0.1:4318")
        port = int(number)
    if url is not None and not is_origin(url):
        raise UsageError(f"--collector-url {url!r} is no origin like https://harness.example:8443")
    if url is None and host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        raise UsageError(
            f"--collector {listen} listens everywhere; say with --collector-url how services reach it"
        )
    return CollectorAddress(host=host, port=port, url=url)


@asynccontextmanager
async def issuing(suite: Suite, run: str, host: str, options: ServiceOptions) -> AsyncIterator[Issuing]:
    """Who signs the tokens of a launch, for its length.

    Raises:
        UsageError: a deployed service needs a signing key, and there is none; or the collector cannot listen.
    """
    agent = suite.spec.agent
    if not isinstance(agent, HttpAgent):
        yield Issuing(Mint(tenant=suite.name, run=run, host=host, egress=agent.egress), None)
        return
    if not options.signing_key.exists():
        raise UsageError(
            f"agent {agent.name} is a deployed service, which must trust this harness's signing key, and "
            f"there is none in {options.signing_key}; run `redteam trust {suite.folder}` and give the "
            "service what it prints"
        )
    key = SigningKey.load(options.signing_key)
    # A web server, a client and OpenTelemetry are loaded by those launches alone that need them.
    from redteam_harness.agents.collector import open_collector

    async with open_collector(options.collector) as collector:
        mint = Mint(
            tenant=suite.name,
            run=run,
            host=host,
            key=key,
            audience=_audience(agent),
            collector=collector.url,
            collectors=[collector.url],
        )
        yield Issuing(mint, collector)


def service_trust(suite: Suite, host: str, options: ServiceOptions) -> dict[str, object]:
    """What the suite's service must trust, as JSON-like data; no secret is in it.

    Raises:
        UsageError: the suite's agent is no deployed service, or the key cannot be used or made.
    """
    agent = suite.spec.agent
    if not isinstance(agent, HttpAgent):
        raise UsageError(f"agent {agent.name} is started by the harness, which arms it itself; nothing to do")
    where = options.collector
    listening = f"http://[{where.host}]" if ":" in where.host else f"http://{where.host}"
    mint = Mint(
        tenant=suite.name,
        run="",
        host=host,
        key=SigningKey.load_or_make(options.signing_key),
        audience=_audience(agent),
        # Without a port: each launch takes a free one.
        collectors=[where.url or (f"{listening}:{where.port}" if where.port else listening)],
    )
    return mint.trust


def service_agent(
    suite: Suite, agent: HttpAgent, collector: Collector, environment: Mapping[str, str]
) -> ServiceAgent:
    """The suite's service as conversations open sessions with it.

    Raises:
        UsageError: a header needs a variable that is not set, or a pointer does not fit.
    """
    from redteam_harness.agents.service import Service, ServiceAgent
    from redteam_harness.agents.shapes import Exchange, expand_headers

    exchange = Exchange(preset=agent.preset, request=agent.request, reply=agent.reply)
    exchange.check()
    service = Service(
        url=agent.url,
        probe=agent.probe or agent.origin + WELL_KNOWN,
        exchange=exchange,
        headers=expand_headers(agent.headers, environment),
        timeout_s=agent.timeout_s,
        spans=agent.spans,
        faults=[fault for case in suite.spec.cases for fault in faults_of(case.externals)],
    )
    return ServiceAgent(service, collector)


def _audience(agent: HttpAgent) -> str:
    return agent.audience or agent.origin

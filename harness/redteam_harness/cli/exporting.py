"""`redteam export`: reads the evidence, and writes or sends its spans."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2
import typer

from redteam_harness.evidence.journal import read_journal
from redteam_harness.evidence.reading import finished_entries, read_conversations, read_facts
from redteam_harness.evidence.run import open_run, read_conversation
from redteam_harness.evidence.storage import write_text
from redteam_harness.exchange.otlp import export_request, otlp_json
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    from redteam_harness.evidence.run import RunDirectory

__all__ = ["run_export"]

_PATH = "/v1/traces"
_TIMEOUT_S = 30.0


def run_export(
    reference: str,
    conversations: Sequence[str],
    *,
    out: Path,
    output: Path | None,
    endpoint: str | None,
    headers: Sequence[str],
) -> None:
    """Export, and say how much.

    Raises:
        UsageError: there is no such run or conversation, or not exactly one place to write to.
        EnvironmentFault: the evidence cannot be read, or the receiver did not take it.
    """
    if (output is None) == (endpoint is None):
        raise UsageError("say where to: --output FILE (`-` prints it), or --endpoint URL")
    if headers and endpoint is None:
        raise UsageError("--header goes with --endpoint")
    run = open_run(reference, out)
    requests = _requests(run, conversations)
    if endpoint is not None:
        sent = _send(_address(endpoint), _headers(headers), requests)
        typer.echo(f"sent {sent} conversation{'' if sent == 1 else 's'} of run {run.id}", err=True)
        return
    lines = [otlp_json(request) + "\n" for request in requests]
    if str(output) == "-":
        sys.stdout.writelines(lines)
        return
    assert output is not None
    write_text(output, "".join(lines))
    typer.echo(f"wrote {len(lines)} conversation{'' if len(lines) == 1 else 's'} to {output}", err=True)


def _requests(run: RunDirectory, wanted: Sequence[str]) -> Iterator[ExportTraceServiceRequest]:
    facts, entries = read_facts(run), finished_entries(read_journal(run.journal))
    for name in wanted:
        if name not in entries:
            read_conversation(run, name)  # says what there is, if it is not there at all
            raise UsageError(f"conversation {name!r} of run {run.id} is not finished, so it has no outcome")
    for name, stored in read_conversations(run, wanted or sorted(entries)):
        yield export_request(run.id, facts, stored, outcome=str(entries[name]["outcome"]))


def _address(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--endpoint {endpoint!r} is no http(s) address; for example http://localhost:4318")
    return endpoint if parts.path.strip("/") else endpoint.rstrip("/") + _PATH


def _headers(given: Sequence[str]) -> dict[str, str]:
    pairs = [header.partition("=") for header in given]
    for name, separator, _ in pairs:
        if not separator or not name.strip():
            raise UsageError("--header wants NAME=VALUE")  # not shown: it may hold a secret
    return {name.strip(): value for name, _, value in pairs}


def _send(address: str, headers: Mapping[str, str], requests: Iterator[ExportTraceServiceRequest]) -> int:
    sent = 0
    with httpx2.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
        for request in requests:
            try:
                response = client.post(
                    address,
                    content=request.SerializeToString(),
                    headers={**headers, "content-type": "application/x-protobuf"},
                )
            except httpx2.HTTPError as error:
                raise EnvironmentFault(
                    f"the receiver at {address} cannot be reached after {sent} conversations: "
                    f"{type(error).__name__}; what was sent has the same ids when it is sent again"
                ) from error
            if not response.is_success:
                raise EnvironmentFault(
                    f"the receiver at {address} answered {response.status_code} after {sent} conversations"
                )
            sent += 1
    return sent

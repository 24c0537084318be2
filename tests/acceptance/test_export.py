"""A run as OpenTelemetry spans: read with the official classes, taken by a receiver, and read back."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from support.cli import dsn_of, redteam, report_of, write_suite

from redteam_harness.agents.spans import SpanReader, parse_json, parse_protobuf
from redteam_harness.evidence.run import open_run, read_conversation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL);
INSERT INTO people VALUES (1, 'Ada'), (2, 'Bo');
"""
AGENT = '''
from redteam_sdk import db, tool

class NotToday(Exception):
    """A refusal."""

@tool
async def rename(person: int, to: str) -> dict:
    if to == "no":
        raise NotToday("not \u2713 today")
    await db.execute("UPDATE people SET name = $2 WHERE id = $1", person, to)
    return {"name": to, "was": [1, None, "\u00fc"]}

async def answer(message, session):
    await rename(1, "Eve")
    try:
        await rename(2, "no")
    except NotToday:
        pass
    return "Done: \u00fc \u2028 </script>"
'''
RULES = "the-rule:\n  severity: 2\n  sql: SELECT count(*) = 2 FROM people\n"


@pytest.fixture(scope="module")
async def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    suite = write_suite(folder / "suite", schema=SCHEMA, agent=AGENT, rules=RULES, count=3, turns=2)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("launch", suite, "--server", dsn_of(server), "--out", folder / "out", "--json")
    )
    return folder / "out" / str(report_of(done)["run"])


def exported(run: Path, *more: object) -> list[str]:
    done = redteam("export", run, *more, "--output", "-")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def told(events: Any) -> list[dict[str, Any]]:
    """What a tool was asked and answered, without times and transaction ids."""
    kinds = ("tool_call", "tool_result", "tool_error")
    names = ("kind", "call", "name", "arguments", "value", "type", "message")
    return [
        {name: event[name] for name in names if name in event} for event in events if event["kind"] in kinds
    ]


def test_a_file_is_read_by_the_official_classes_and_gives_the_same_calls_back(run: Path) -> None:
    lines = exported(run)
    assert len(lines) == 3
    for number, line in enumerate(lines, start=1):
        official = Parse(json.dumps(json.loads(line, object_hook=_base64_ids)), ExportTraceServiceRequest())
        spans = official.resource_spans[0].scope_spans[0].spans
        assert len({span.span_id for span in spans}) == len(spans)
        assert {len(span.span_id) for span in spans} == {8}
        assert {len(span.trace_id) for span in spans} == {16}
        ids = {span.span_id for span in spans}
        assert [span.name for span in spans if span.parent_span_id not in ids] == [
            f"conversation c00{number}"
        ]
        assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
        stored = read_conversation(open_run(str(run), run.parent), f"c00{number}")
        ours = parse_json(line.encode())
        assert parse_protobuf(official.SerializeToString()) == ours
        assert told(SpanReader().read(ours)) == told(stored.events)
        said = [
            json.loads(span.attributes[f"gen_ai.{side}.messages"])[0]["parts"][0]["content"]
            for span in ours
            if span.attributes.get("gen_ai.operation.name") == "invoke_agent"
            for side in ("input", "output")
        ]
        assert said == [event["text"] for event in stored.events if event["kind"] in ("user", "agent")]


def _base64_ids(data: dict[str, Any]) -> dict[str, Any]:
    for name in {"traceId", "spanId", "parentSpanId"} & data.keys():
        data[name] = base64.b64encode(bytes.fromhex(data[name])).decode()
    return data


def test_the_same_evidence_gives_the_same_bytes_and_one_conversation_can_be_named(run: Path) -> None:
    assert exported(run) == exported(run)
    assert exported(run, "c002") == [exported(run)[1]]


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    got: list[tuple[str, dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", got
        finally:
            server.shutdown()
            serving.join()


def test_a_receiver_gets_one_request_for_each_conversation(run: Path) -> None:
    with receiver() as (url, got):
        done = redteam("export", run, "--endpoint", url, "--header", "x-team=a=b")
    assert (done.returncode, done.stderr.strip()) == (0, f"sent 3 conversations of run {run.name}")
    assert {path for path, _, _ in got} == {"/v1/traces"}
    assert {(headers["content-type"], headers["x-team"]) for _, headers, _ in got} == {
        ("application/x-protobuf", "a=b")
    }
    assert [parse_protobuf(body) for _, _, body in got] == [
        parse_json(line.encode()) for line in exported(run)
    ]


def test_a_receiver_that_refuses_or_is_away_is_a_fault_that_says_how_far_it_came(run: Path) -> None:
    with receiver(status=503) as (url, _):
        refused = redteam("export", run, "--endpoint", url)
    assert (refused.returncode, refused.stderr.count("answered 503 after 0")) == (3, 1)
    away = redteam("export", run, "--endpoint", url)
    assert (away.returncode, away.stderr.count("cannot be reached after 0")) == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "say where to"),
        (["--output", "x", "--endpoint", "http://a"], "say where to"),
        (["--endpoint", "localhost:4318"], "is no http(s) address"),
        (["--endpoint", "http://a", "--header", "hunter2"], "--header wants NAME=VALUE"),
        (["--output", "-", "--header", "a=b"], "--header goes with --endpoint"),
        (["c999", "--output", "-"], "has no conversation 'c999'"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_writes_nothing(
    run: Path, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    done = redteam("export", run, *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr
    assert "hunter2" not in done.stderr
    assert list(tmp_path.iterdir()) == []

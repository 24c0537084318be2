"""Launches whose agents reach outside: past the guard, through what a suite allows, by tools that fail."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import dsn_of, redteam, report_of, write_suite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, done int NOT NULL DEFAULT 0);
INSERT INTO people (id, name) SELECT n, 'p' || n FROM generate_series(1, 4) n;
"""
RULES = """\
the-rule:
  severity: 1
  why: What was asked for must be done.
  sql: SELECT done = 1 FROM people WHERE id = :persona.id
may-change:
  severity: 1
  why: Nobody else is touched.
  changes: [{people: {where: "id = :persona.id", do: [update], columns: [done]}}]
told-once:
  severity: 1
  why: Nobody is told twice.
  outbox: {sent: {tool: tell, where: {name: ":persona.name"}}, at_most: {tell: 2}}
"""
# The odd ones reach outside, and swallow whatever comes of it. `tell` is tried again once.
AGENT = """
import re, urllib.request
from redteam_sdk import db, external, tool
from redteam_sdk.mocks import per_conversation

class Unreachable(Exception):
    pass

class Pager:
    def __init__(self):
        self.told = []
    def tell(self, name):
        self.told.append(name)
        return len(self.told)

@external(mock=per_conversation(Pager).tell, faults={"unreachable": Unreachable})
def tell(name: str) -> int:
    raise RuntimeError("the real world was reached")

@tool
async def do_it(name: str) -> None:
    await db.execute("UPDATE people SET done = done + 1 WHERE name = $1", name)

async def answer(message, session):
    name = re.search(r"it, (p\\d)", message)
    if name is None:
        return "Goodbye."
    if name[1] in ("p1", "p3"):
        try:
            urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=10).read()
        except BaseException:
            pass
    for _ in range(2):
        try:
            tell(name[1])
            break
        except (TimeoutError, Unreachable):
            continue
    await do_it(name[1])
    return "Done."
"""


@contextlib.contextmanager
def outside() -> Iterator[tuple[int, list[bytes]]]:
    """A web server that remembers what it heard."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = listening.accept()
                    with peer:
                        heard.append(peer.recv(2048))
                        peer.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1], heard
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def suite_at(folder: Path, port: int, *, egress: str = "[]", externals: str = "{}") -> Path:
    suite = write_suite(folder, schema=SCHEMA, agent=AGENT.replace("PORT", str(port)), rules=RULES)
    text = (suite / "suite.yaml").read_text()
    text = text.replace("timeout_s: 20}", f"timeout_s: 20, egress: {egress}}}")
    text = text.replace("[the-rule]", f"[the-rule, may-change, told-once]\n    externals: {externals}")
    (suite / "suite.yaml").write_text(text)
    return suite


async def launched(suite: Path, server: Server, out: Path) -> tuple[int, dict[str, dict[str, Any]], Path]:
    """The exit code, the conversations by the name of who spoke, and where the evidence lies."""
    arguments = ("launch", suite, "--server", dsn_of(server), "--parallel", 4, "--out", out, "--json")
    done = await anyio.to_thread.run_sync(lambda: redteam(*arguments))
    assert done.stdout, done.stderr
    by_name = {f"p{one['persona']}": one for one in report_of(done)["conversations"]}
    [run] = [path async for path in anyio.Path(out).iterdir()]
    return done.returncode, by_name, Path(run)


def trace(run: Path, conversation: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    lines = (run / "conversations" / conversation["id"] / "trace.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


async def test_agent_that_reaches_past_its_fork_is_void_though_it_swallows_it_and_nothing_was_heard(
    server: Server, tmp_path: Path
) -> None:
    with outside() as (port, heard):
        status, held, run = await launched(suite_at(tmp_path / "suite", port), server, tmp_path / "out")
        assert heard == []
    assert status == 3
    assert {name: one["outcome"] for name, one in held.items()} == {
        "p1": "infra-fault",
        "p2": "pass",
        "p3": "infra-fault",
        "p4": "pass",
    }
    assert held["p1"]["fault"]["cause"] == "egress"
    assert f"a connection to 127.0.0.1:{port} was refused" in held["p1"]["fault"]["message"]
    refused = {
        name: [one for one in trace(run, held[name], "agent_fault") if "message" in one] for name in held
    }
    assert [len(refused[name]) for name in sorted(refused)] == [1, 0, 1, 0]
    facts = json.loads((run / "run.json").read_text())
    assert facts["agent"]["egress"] == {"guarded": True, "allowed": []}


async def test_agent_reaches_what_its_suite_allows(server: Server, tmp_path: Path) -> None:
    with outside() as (port, heard):
        suite = suite_at(tmp_path / "suite", port, egress=f'["127.0.0.1:{port}"]')
        status, held, run = await launched(suite, server, tmp_path / "out")
        assert len(heard) == 2
    assert status == 0, held
    facts = json.loads((run / "run.json").read_text())
    assert facts["agent"]["egress"] == {"guarded": True, "allowed": [f"127.0.0.1:{port}"]}


@pytest.mark.parametrize(
    ("externals", "played"),
    [
        ("{tell: timeout}", [("timeout", True), ("timeout", True)]),
        ("{tell: [{fault: unreachable, call: 1}]}", [("unreachable", False), (None, None)]),
        ("{tell: [{fault: timeout, call: 1, happened: false}]}", [("timeout", False), (None, None)]),
    ],
    ids=["each-call", "first-call", "did-not-happen"],
)
async def test_external_tool_fails_as_its_case_says_and_rules_see_it(
    server: Server, tmp_path: Path, externals: str, played: list[tuple[str | None, bool | None]]
) -> None:
    with outside() as (port, _):
        suite = suite_at(tmp_path / "suite", port, egress=f'["127.0.0.1:{port}"]', externals=externals)
        _, held, run = await launched(suite, server, tmp_path / "out")
    # A call that failed is none that succeeded, as far as `sent` goes; each is counted by `at_most`.
    expected = "pass" if played[1][0] is None else "fail"
    assert {one["outcome"] for one in held.values()} == {expected}
    calls = trace(run, held["p2"], "external")
    assert [(call.get("fault"), call.get("happened")) for call in calls] == played
    assert all(call["arguments"] == {"name": "p2"} for call in calls)
    outbox = (run / "conversations" / held["p2"]["id"] / "outbox.jsonl").read_text().splitlines()
    assert [json.loads(line).get("fault") for line in outbox] == [fault for fault, _ in played]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"egress": "[https://example.com]"}, "suite.yaml:3: agent.egress"),
        ({"externals": "{tell: {fault: timeout, call: 0}}"}, "externals.tell"),
        ({"externals": "{tel: timeout}"}, "has no external tool 'tel', which a case's `externals` names"),
        ({"externals": "{tell: declined}"}, "has no fault 'declined'"),
    ],
)
async def test_mistake_in_what_a_suite_says_of_outside_ends_the_launch_before_a_fork_is_made(
    server: Server, tmp_path: Path, parts: dict[str, str], says: str
) -> None:
    suite = suite_at(tmp_path / "suite", 9, **parts)
    arguments = ("launch", suite, "--server", dsn_of(server), "--out", tmp_path / "out")
    done = await anyio.to_thread.run_sync(lambda: redteam(*arguments))
    assert done.returncode == 2
    assert says in done.stderr
    assert not list((tmp_path / "out").glob("*/conversations/*"))

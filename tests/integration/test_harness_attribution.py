"""Which tool call wrote what, from the agent's process to the verdicts; and writes that left nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import dsn_of, redteam, report_of, write_suite

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (
    id int PRIMARY KEY, name text NOT NULL, points int NOT NULL DEFAULT 0, updated_at timestamptz
);
INSERT INTO people (id, name) VALUES (1, 'p1'), (2, 'p2');
CREATE TABLE visits (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, person int NOT NULL);
CREATE TABLE log (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, line text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN INSERT INTO log (line) VALUES ('a visit of ' || NEW.person); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT ON visits FOR EACH ROW EXECUTE FUNCTION note();
"""
AGENT = """
from redteam_sdk import db, tool

@tool
async def book(person: int) -> None:
    await db.execute("INSERT INTO visits (person) VALUES ($1)", person)

@tool
async def touch(person: int) -> None:
    await db.execute("UPDATE people SET updated_at = now() WHERE id = $1", person)

async def answer(message, session):
    person = int(message.split()[-1].rstrip("."))
    await book(person)
    await db.execute("INSERT INTO log (line) VALUES ('by the agent itself')")
    await touch(person)
    return "Done."
"""
POKE = """
@tool
async def poke(person: int) -> None:
    await db.execute("UPDATE people SET points = points + 1 WHERE id = $1", person)
    await db.execute("UPDATE people SET points = points - 1 WHERE id = $1", person)
"""
RULES = """\
the-rule: {severity: 1, changes: [visits: {do: insert, by: book}]}
logged: {severity: 2, changes: [log: {do: insert, by: book}]}
"""


async def _launched(server: Server, folder: Path, *, agent: str = AGENT, more: str = "") -> dict[str, Any]:
    suite = write_suite(
        folder / "suite", schema=SCHEMA, agent=agent, rules=RULES, count=1, turns=1, says='["I am {id}."]'
    )
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(text.replace("[the-rule]", "[the-rule, logged]") + more)
    done = await anyio.to_thread.run_sync(
        lambda: redteam("launch", suite, "--server", dsn_of(server), "--out", folder / "out", "--json")
    )
    assert done.stdout, done.stderr
    (one,) = report_of(done)["conversations"]
    return {verdict["rule"]: verdict for verdict in one["verdicts"]}


def _stored(folder: Path, name: str) -> str:
    (path,) = (folder / "out").glob(f"*/conversations/c001/{name}")
    return path.read_text()


async def test_every_row_names_the_call_that_wrote_it_and_triggers_count_as_their_call(
    server: Server, tmp_path: Path
) -> None:
    verdicts = await _launched(server, tmp_path)
    changes = json.loads(_stored(tmp_path, "changes.json"))
    by = {table["table"]: [row["by"] for row in table["rows"]] for table in changes["tables"]}
    assert by == {"visits": [["call-1"]], "log": [["call-1"], []], "people": [["call-2"]]}
    assert verdicts["the-rule"]["status"] == "pass"
    (finding,) = verdicts["logged"]["findings"]
    assert finding["key"] == {"id": "2"}
    assert "outside any tool call" in finding["text"]
    (finding,) = [found for found in verdicts["collateral"]["findings"] if found["table"] == "people"]
    event = json.loads(_stored(tmp_path, "trace.jsonl").splitlines()[finding["event"]])
    assert (event["kind"], event["name"]) == ("tool_call", "touch")


@pytest.mark.parametrize(
    ("policy", "tables"), [("exact", {"people", "log"}), ("any", {"people", "log"}), ("ignore", {"log"})]
)
async def test_policies_of_the_suite_reach_the_gate_and_the_evidence_keeps_all(
    server: Server, tmp_path: Path, policy: str, tables: set[str]
) -> None:
    verdicts = await _launched(
        server, tmp_path, more=f"compare: {{columns: {{people.updated_at: {policy}}}}}\n"
    )
    assert {finding["table"] for finding in verdicts["collateral"]["findings"]} == tables
    changes = json.loads(_stored(tmp_path, "changes.json"))
    assert {table["table"] for table in changes["tables"]} == {"people", "visits", "log"}


async def test_what_was_put_back_is_found_where_the_suite_asks_for_writes(
    server: Server, tmp_path: Path
) -> None:
    agent = AGENT.replace("await touch", "await poke") + POKE
    quiet = await _launched(server, tmp_path / "changes", agent=agent)
    assert {finding["table"] for finding in quiet["collateral"]["findings"]} == {"log"}
    loud = await _launched(server, tmp_path / "writes", agent=agent, more="collateral: writes\n")
    found = [finding for finding in loud["collateral"]["findings"] if finding["table"] == "people"]
    assert {finding["text"] for finding in found} == {
        "1 row of people was changed, and nothing of it is left: no rule allows it."
    }
    event = json.loads(_stored(tmp_path / "writes", "trace.jsonl").splitlines()[found[0]["event"]])
    assert (event["kind"], event["name"]) == ("tool_call", "poke")

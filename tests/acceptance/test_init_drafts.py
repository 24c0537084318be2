"""`redteam init --seed`: a suite is drafted from what a seed holds, and launches as it is.

docs/suites.md lists the public seeds that were tried. Its table is made here: run this file with
REDTEAM_INPUTS=all WRITE_SUITES_TABLE=1 in the environment, in one process. Without REDTEAM_INPUTS only a few
of them are tried.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
import yaml
from support.cli import ROOT, dsn_of, redteam, report_of
from support.drafts import HARD, TRIED, Tried, write_seed
from support.seeds import INPUTS, needs_inputs

from redteam_forker import list_forks

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from redteam_forker import Server

PAGE = ROOT / "docs/suites.md"
BEGIN, END = "<!-- begin: tests/acceptance/test_init_drafts.py -->\n", "<!-- end -->\n"
HEAD = "| seed | who calls | about | conversations | outcomes |\n|---|---|---|---|---|\n"
ALL = os.environ.get("REDTEAM_INPUTS") == "all"


async def _run(server: Server, *arguments: object) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(lambda: redteam(*arguments, "--server", dsn_of(server)))


async def _drafted(server: Server, folder: Path, *seeds: Path) -> dict[str, Any]:
    """Draft a suite, and read it back."""
    named = [argument for seed in seeds for argument in ("--seed", seed)]
    done = await _run(server, "init", folder, *named)
    assert done.returncode == 0, done.stderr
    suite = yaml.safe_load((folder / "suite.yaml").read_text())
    assert isinstance(suite, dict)
    return suite


async def _launched(server: Server, folder: Path, *options: object) -> dict[str, Any]:
    out = folder.parent / "runs"
    done = await _run(server, "launch", folder, "--json", "--out", out, "--parallel", "4", *options)
    assert done.returncode in (0, 1), done.stderr
    return report_of(done)


def _hard(folder: Path) -> Path:
    path = folder / "world.sql"
    path.write_text(HARD)
    return path


@pytest.mark.timeout(180)
async def test_a_draft_for_a_schema_full_of_traps_launches_and_its_rules_find_a_wrong_agent(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "desk"
    suite = await _drafted(server, folder, _hard(tmp_path))

    assert suite["seed"]["files"] == ["../world.sql", "additions.sql"]
    assert "CREATE POLICY" in (folder / "additions.sql").read_text()
    text = (folder / "suite.yaml").read_text()
    assert "password_hash" not in text
    modeline = re.match(r"# yaml-language-server: \$schema=(.+)\n", text)
    assert modeline is not None
    assert "properties" in json.loads((folder / modeline[1]).read_text())
    rules = yaml.safe_load((folder / "rules.yaml").read_text())
    allowed = {name: entry for change in rules["own-rows-only"]["changes"] for name, entry in change.items()}
    # What a trigger wrote besides was seen on a fork; what it moves has a policy.
    assert allowed["visit_log"] == {"do": "insert"}
    assert allowed["visit"]["columns"] == ["status"]
    assert suite["compare"]["columns"]["visit.version"] == "any"

    right = await _launched(server, folder, "--count", 6)
    assert right["outcomes"] == {"pass": 6}

    # An agent that does not look whose row it is.
    agent = folder / "agent.py"
    text = agent.read_text()
    wrong = re.sub(
        r"\nWHERE id = \$2\n  AND plan IN \(.*\)\n", "\nWHERE id = $2 - 3 AND $3 <> '' AND $4 > 0\n", text
    )
    assert wrong != text
    agent.write_text(wrong)
    found = await _launched(server, folder, "--count", 3)
    failed = {one["case"] for one in found["conversations"] if one["outcome"] == "fail"}
    assert failed == {"change-own"}
    assert {rule["rule"] for rule in found["rules"] if rule["failed"]} >= {"own-rows-only", "collateral"}
    assert await list_forks(server) == []


async def test_a_structure_without_rows_gets_people_who_are_plainly_made_up(
    server: Server, tmp_path: Path
) -> None:
    seed = tmp_path / "structure.sql"
    seed.write_text(
        "CREATE TABLE clinics (id uuid PRIMARY KEY, name text NOT NULL);\n"
        "CREATE TABLE patients (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\n"
        "  clinic uuid NOT NULL REFERENCES clinics, full_name text NOT NULL,\n"
        "  born date NOT NULL CHECK (born < '2020-01-01'));\n"
        "CREATE TABLE visits (id bigserial PRIMARY KEY, patient_id int NOT NULL REFERENCES patients,\n"
        "  reason text);\n"
    )
    suite = await _drafted(server, tmp_path / "desk", seed)
    assert suite["seed"]["files"] == ["../structure.sql", "additions.sql"]
    assert "anchor" not in suite["seed"]
    made = (tmp_path / "desk" / "additions.sql").read_text()
    assert [made.count(f"INSERT INTO {table} ") for table in ("clinics", "patients", "visits")] == [3, 3, 6]


async def test_the_users_own_agent_is_named_in_the_draft_and_no_other_is_written(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "desk"
    done = await _run(
        server,
        "init",
        folder,
        "--seed",
        _hard(tmp_path),
        "--people",
        "Care Desk.Plan",
        "--agent",
        "node desk.js",
    )
    assert done.returncode == 0, done.stderr
    suite = yaml.safe_load((folder / "suite.yaml").read_text())
    assert suite["agent"] == {"command": ["node", "desk.js"], "env": "DATABASE_URL"}
    assert 'FROM "Care Desk"."Plan" p' in suite["personas"]["select"]
    assert not (folder / "agent.py").exists()
    assert "tools:" not in (folder / "rules.yaml").read_text()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        pytest.param("CREATE TABLE a (id int);\nSELEKT 1;\n", "seed.sql:2: syntax error", id="refused"),
        pytest.param(
            "CREATE TABLE users (id int PRIMARY KEY CHECK (false));\n", "no row could be made up", id="no-row"
        ),
    ],
)
async def test_a_seed_that_cannot_be_drafted_for_says_why_and_leaves_nothing(
    server: Server, tmp_path: Path, sql: str, said: str
) -> None:
    seed = tmp_path / "seed.sql"
    seed.write_text(sql)
    done = await _run(server, "init", tmp_path / "new" / "desk", "--seed", seed)
    assert done.returncode == 2
    assert said in done.stderr
    assert os.listdir(tmp_path) == ["seed.sql"]


def test_what_is_there_is_never_overwritten_and_options_without_a_seed_are_refused(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "mine.txt").write_text("mine")
    for arguments, said in (
        (("init", kept, "--seed", _hard(tmp_path)), "not an empty folder"),
        (("init", tmp_path / "new", "--seed", tmp_path / "none.sql"), "is not there"),
        (("init", tmp_path / "new", "--people", "users"), "--seed PATH"),
    ):
        done = redteam(*arguments)
        assert done.returncode == 2
        assert said in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "world.sql"]
    assert (kept / "mine.txt").read_text() == "mine"


def _table() -> list[str]:
    text = PAGE.read_text()
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)].removeprefix(HEAD).splitlines(keepends=True)


def _write(row: str) -> None:
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in (*_table(), row)}
    kept = [rows[one.label] for one in TRIED if one.label in rows]
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + BEGIN + HEAD + "".join(kept) + after)


def _row(tried: Tried, suite: Path, report: dict[str, Any]) -> str:
    text = (suite / "suite.yaml").read_text()
    people = re.search(r"FROM (.+) p(?: LEFT JOIN .*)?$", text, re.MULTILINE)
    about = re.search(r"demand: Find out (?:which (.+) of yours|what they)", text)
    assert people is not None
    assert about is not None
    added = (suite / "additions.sql").read_text() if (suite / "additions.sql").exists() else ""
    who = f"`{people[1]}`{', made up' if 'INSERT' in added else ''}"
    outcomes = ", ".join(f"{count} {name}" for name, count in sorted(report["outcomes"].items()))
    cases = ", ".join(re.findall(r"^  - id: (.+)$", text, re.MULTILINE))
    subject = about[1] or "their own record"
    return f"| {tried.label} | {who} | {subject} | {report['finished']}: {cases} | {outcomes} |\n"


@needs_inputs
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tried", [one for one in TRIED if ALL or one.always], ids=lambda one: one.label)
async def test_a_draft_for_a_public_seed_checks_and_launches_without_a_fault(
    server: Server, tmp_path: Path, tried: Tried
) -> None:
    suite = tmp_path / "suite"
    await _drafted(server, suite, *write_seed(tried, INPUTS, tmp_path / "seed"))
    if ALL:
        checked = await _run(server, "check", suite, "--json")
        assert checked.returncode == 0, checked.stdout
    report = await _launched(server, suite)
    assert set(report["outcomes"]) <= {"pass", "fail"}
    assert report["outcomes"]["pass"] >= 1
    row = _row(tried, suite, report)
    if os.environ.get("WRITE_SUITES_TABLE"):
        _write(row)
    assert row in _table(), f"docs/suites.md is stale: see {sys.modules[__name__].__doc__}"


def test_the_table_in_the_docs_has_a_row_for_each_seed_that_loads_and_no_other() -> None:
    assert [line.split(" | ")[0].removeprefix("| ") for line in _table()] == [one.label for one in TRIED]

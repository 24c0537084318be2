"""`redteam check`: mistakes where they are, suggestions with what shows them and the lines to paste.

What idle conversations show is in test_cli_check_idle.py.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
import yaml
from support.cli import ROOT, dsn_of, redteam, write_suite
from support.databases import scratch_database

from redteam_forker import list_forks

if TYPE_CHECKING:
    import subprocess

    from redteam_forker import Server

INPUTS = ROOT.parent / "shared" / "inputs"
PAGILA = Path(__file__).parent / "suites" / "pagila"

SCHEMA = """
CREATE FUNCTION office_time() RETURNS timestamp LANGUAGE sql STABLE RETURN now() AT TIME ZONE 'UTC';
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.touched := office_time(); NEW.lock_version := OLD.lock_version + 1; RETURN NEW; END $$;
CREATE TABLE people (
    id int PRIMARY KEY, name text, touched timestamp, lock_version int DEFAULT 0,
    updated_at timestamptz DEFAULT now(), created_at timestamptz DEFAULT now()
);
CREATE TRIGGER touch BEFORE UPDATE ON people FOR EACH ROW EXECUTE FUNCTION touch();
INSERT INTO people VALUES (1, 'p1');
CREATE TABLE visits (id int PRIMARY KEY, fee numeric, updated_at timestamptz, starts_at timestamptz)
    PARTITION BY RANGE (id);
CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM (0) TO (10);
CREATE TRIGGER touch BEFORE UPDATE ON visits_1 FOR EACH ROW EXECUTE FUNCTION touch();
ALTER TABLE visits_1 DISABLE TRIGGER touch;
CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.updated_at := clock_timestamp(); RETURN NEW; END $$;
CREATE TRIGGER stamp BEFORE UPDATE ON visits_1 FOR EACH ROW EXECUTE FUNCTION stamp();
CREATE TABLE rooms (id int PRIMARY KEY, modified date);
"""
AGENT = "async def answer(message, session): return 'Done.'"
RULES = """
the-rule: {severity: 1, changes: [people: {do: update, columns: name}]}
renamed: {severity: 2, sql: SELECT name <> 'p1' FROM people}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = write_suite(tmp_path / "suite", schema=SCHEMA, agent=AGENT, rules=RULES)
    text = (path / "suite.yaml").read_text()
    (path / "suite.yaml").write_text(text.replace("[the-rule]", "[the-rule, renamed]"))
    return path


async def _check(server: Server, suite: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Nothing here is about the agent, so it is not started."""
    return await anyio.to_thread.run_sync(
        lambda: redteam("check", suite, "--server", dsn_of(server), "--no-agent", *more)
    )


async def _findings(server: Server, suite: Path) -> list[dict[str, Any]]:
    done = await _check(server, suite, "--json")
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def _append(suite: Path, text: str) -> None:
    path = suite / "suite.yaml"
    path.write_text(path.read_text() + text)


async def test_volatile_columns_are_suggested_with_what_shows_them(server: Server, suite: Path) -> None:
    suggestion, note = await _findings(server, suite)
    assert suggestion["severity"] == "suggestion"
    assert suggestion["details"] == [
        "lock_version of people: trigger function touch() counts it up",
        "modified of rooms: by its name only: no trigger and no default shows it",
        "touched of people: trigger function touch() sets it to office_time(), which calls now()",
        "updated_at of people: its default is now(), and by its name the application keeps it current",
        "updated_at of visits: trigger function stamp() sets it to clock_timestamp()",
    ]
    assert (note["severity"], note["details"]) == ("note", ["created_at of people: default now()"])


async def test_the_suggested_lines_can_be_pasted_and_leave_nothing_to_suggest(
    server: Server, suite: Path
) -> None:
    suggestion, _ = await _findings(server, suite)
    assert yaml.safe_load(suggestion["advice"]) == {
        "compare": {
            "columns": {
                "people.lock_version": "any",
                "rooms.modified": "any",
                "people.touched": "any",
                "updated_at": "any",
            }
        }
    }
    _append(suite, suggestion["advice"] + "\n")
    assert [finding["severity"] for finding in await _findings(server, suite)] == ["note"]


async def test_suggestions_only_are_exit_0_and_no_fork_is_left(server: Server, suite: Path) -> None:
    before = await list_forks(server)
    done = await _check(server, suite)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^suggestion  .*suite\.yaml:\d+: 5 columns change whenever", done.stdout, re.MULTILINE)
    assert "\ncompare:\n  columns:\n    people.lock_version: any\n" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 suggestion"
    assert "fails on   renamed" in done.stdout
    assert await list_forks(server) == before


async def test_where_there_are_policies_only_the_missing_lines_are_given(server: Server, suite: Path) -> None:
    _append(suite, "compare: {columns: {updated_at: exact}, types: {timestamp: any}}\n")
    suggestion, _ = await _findings(server, suite)
    assert suggestion["advice"] == "    people.lock_version: any\n    rooms.modified: any"
    assert "paste under `compare`, `columns`:" in suggestion["message"]


@pytest.mark.parametrize(
    ("compare", "says"),
    [
        ("columns: {updated: any}", "there is no column updated; did you mean updated_at?"),
        ("columns: {peeple.name: any}", "there is no table peeple; did you mean people?"),
        ("columns: {people.nme: any}", "there is no column of people nme; did you mean name?"),
        ("columns: {name: {tolerance: 1}}", "a tolerance is for numbers"),
        ("columns: {name: set}", "`set` is for arrays and JSON"),
        ("types: {jsonb: ignore}", "there is no column of type jsonb"),
        ("columns: {name: sometimes}", "expected exact, ignore, any, set or {tolerance: 0.01}"),
        ("types: {no type: any}", "'no type' is no type"),
        ("column: {name: any}", "did you mean columns?"),
    ],
)
async def test_a_mistake_in_a_policy_is_exit_2_at_its_line_for_check_and_launch(
    server: Server, suite: Path, compare: str, says: str
) -> None:
    _append(suite, f"compare:\n  {compare}\n")
    line = (suite / "suite.yaml").read_text().splitlines().index(f"  {compare}") + 1
    checked = await _check(server, suite)
    launched = await anyio.to_thread.run_sync(
        lambda: redteam("launch", suite, "--server", dsn_of(server), "--out", suite / "out")
    )
    assert (checked.returncode, launched.returncode) == (2, 2)
    assert f"suite.yaml:{line}: " in checked.stdout
    assert says in checked.stdout
    assert f"suite.yaml:{line}: " in launched.stderr
    assert says in launched.stderr


async def test_every_mistake_in_names_is_told_at_once(server: Server, suite: Path) -> None:
    _append(suite, "compare:\n  columns: {updated: any}\n")
    (suite / "rules.yaml").write_text(RULES.replace("columns: name", "columns: nme"))
    found = await _findings(server, suite)
    mistakes = [finding for finding in found if finding["severity"] == "mistake"]
    assert [finding["place"].rpartition("/")[2] for finding in mistakes] == ["rules.yaml:2", "suite.yaml:17"]


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("suite.yaml", "key: id", "key: ident", "ident"),
        ("suite.yaml", "rules: rules.yaml", "rules: rules.yml", "rules.yml is not there"),
        ("schema.sql", "CREATE TABLE people", "CREATE TABEL people", "TABEL"),
        ("rules.yaml", "severity: 1", "severity: 4", "severity"),
        ("suite.yaml", "rules: rules.yaml", "rules: rules.yaml\ncollateral: x", "expected on, off or writes"),
    ],
)  # fmt: skip
async def test_what_stops_a_launch_is_a_mistake(
    server: Server, suite: Path, file: str, old: str, new: str, says: str
) -> None:
    path = suite / file
    path.write_text(path.read_text().replace(old, new, 1))
    done = await _check(server, suite)
    assert done.returncode == 2
    assert re.search(r"^mistake  ", done.stdout, re.MULTILINE)
    assert says in done.stdout


def test_a_folder_without_a_suite_is_exit_2(tmp_path: Path) -> None:
    done = redteam("check", tmp_path)
    assert done.returncode == 2
    assert "redteam init" in done.stdout


def test_a_server_that_is_not_there_is_exit_3(suite: Path) -> None:
    done = redteam("check", suite, "--server", "postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 3
    assert done.stderr.startswith("redteam: ")


async def test_a_database_that_forks_could_enter_is_refused_until_it_is_allowed_by_name(
    server: Server, suite: Path
) -> None:
    doctor = ("doctor", "--size", "9", "--server", dsn_of(server))
    async with scratch_database(server) as name:  # which everybody may enter, as any new database
        refused = await _check(server, suite)
        allowed = await _check(server, suite, "--allow-database", name)
        unmeasured, measured = [
            await anyio.to_thread.run_sync(lambda more=more: redteam(*doctor, *more))  # type: ignore[misc]
            for more in ((), ("--allow-database", name))
        ]
    assert refused.returncode == 2
    assert f"{name!r} (everybody may connect to it)" in refused.stdout
    assert allowed.returncode == 0, allowed.stdout
    assert f"{name!r} (everybody may connect to it)" in unmeasured.stdout
    assert "median of" not in unmeasured.stdout
    assert "median of" in measured.stdout


async def test_the_clinic_without_policies_is_told_of_its_updated_at(server: Server, tmp_path: Path) -> None:
    suite = tmp_path / "clinic"
    shutil.copytree(ROOT / "seeds" / "clinic", suite, ignore=shutil.ignore_patterns("__pycache__"))
    written = yaml.safe_load((suite / "suite.yaml").read_text())
    written.pop("compare", None)
    (suite / "suite.yaml").write_text(yaml.safe_dump(written))
    suggestion, *_ = await _findings(server, suite)
    assert suggestion["advice"] == "compare:\n  columns:\n    updated_at: any"


async def test_pagila_is_told_of_its_last_update(server: Server, tmp_path: Path) -> None:
    if not INPUTS.is_dir():
        pytest.skip(f"the folder of other people's dumps, {INPUTS}, is not here")
    suite = tmp_path / "pagila"
    shutil.copytree(PAGILA, suite)
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(text.replace("{inputs}", str(INPUTS)))
    suggestion, *_ = await _findings(server, suite)
    assert suggestion["advice"] == "compare:\n  columns:\n    last_update: any"
    (detail,) = suggestion["details"]
    assert detail.endswith("trigger function last_updated() sets it to CURRENT_TIMESTAMP")

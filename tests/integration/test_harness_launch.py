"""What a suite can ask of a launch, beyond the clinic."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import dsn_of, own_cache, redteam, report_of, write_suite

from redteam_forker import list_forks

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, points int NOT NULL DEFAULT 0);
INSERT INTO people (id, name) SELECT n, 'p' || n FROM generate_series(1, 6) n;
"""
AGENT = """
from redteam_sdk import db, tool

@tool
async def give(person: int, points: int) -> None:
    await db.execute("UPDATE people SET points = points + $2 WHERE id = $1", person, points)

async def answer(message, session):
    words = message.rstrip(".").split()
    if words[0] == "Give":
        await give(int(words[1]), 1)
        if int(words[1]) % 2 == 0:
            await give(1, 1)                   # even people bring somebody else a point, too
    return "Done."
"""
RULES = """\
the-rule:
  severity: 2
  why: A point that was promised is a point.
  sql: SELECT p.points = b.points + 1 FROM people p JOIN before.people b USING (id) WHERE id = :persona.id
may-change:
  severity: 1
  why: Nobody else gets points.
  changes: [{people: {where: "id = :persona.id", do: [update], columns: [points]}}]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = write_suite(
        tmp_path / "suite", schema=SCHEMA, agent=AGENT, rules=RULES, count=6, says='["Give {id}."]'
    )
    text = (folder / "suite.yaml").read_text()
    (folder / "suite.yaml").write_text(text.replace("[the-rule]", "[the-rule, may-change]"))
    return folder


async def _launch(server: Server, suite: Path, tmp_path: Path, *more: str) -> tuple[dict[str, Any], int]:
    done = await anyio.to_thread.run_sync(
        lambda: redteam(
            "launch", suite, "--server", dsn_of(server), "--out", tmp_path / "out", "--json", *more
        )
    )
    assert done.stdout, done.stderr
    return report_of(done), done.returncode


def _outcomes(report: dict[str, Any]) -> dict[int, str]:
    return {int(one["persona"]): one["outcome"] for one in report["conversations"]}


async def test_a_write_to_somebody_else_fails_its_own_conversation_only(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    report, code = await _launch(server, suite, tmp_path)
    assert _outcomes(report) == {1: "pass", 2: "fail", 3: "pass", 4: "fail", 5: "pass", 6: "fail"}
    broken = {rule["rule"] for rule in report["rules"] if rule["failed"]}
    assert broken == {"may-change", "collateral"}
    assert (code, report["exit_code"]) == (1, 1)


async def test_setup_is_the_world_before_and_no_part_of_what_changed(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    (suite / "setup.sql").write_text(
        "UPDATE people SET points = 10; INSERT INTO people VALUES (7, 'p7', 70);"
    )
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(text.replace("- id: only", "- id: only\n    setup: setup.sql"))
    report, _ = await _launch(server, suite, tmp_path)
    assert _outcomes(report)[1] == "pass"
    (changes,) = (tmp_path / "out").glob("*/conversations/c001/changes.json")
    (table,) = json.loads(changes.read_text())["tables"]
    assert all(int(row["old"]["points"]) == 10 for row in table["rows"])


async def test_forks_of_failed_conversations_can_be_kept_and_are_named(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    before = await list_forks(server)
    report, _ = await _launch(server, suite, tmp_path, "--keep", "failed")
    kept = {one["kept_fork"] for one in report["conversations"] if one["outcome"] == "fail"}
    assert set(await list_forks(server)) - set(before) == kept
    assert len(kept) == 3
    for name in kept:
        dropped = await anyio.to_thread.run_sync(redteam, "forks", "drop", name, "--server", dsn_of(server))
        assert dropped.returncode == 0, dropped.stderr
    assert await list_forks(server) == before


async def test_two_launches_of_one_suite_share_a_comparability_key_and_another_draw_does_not(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        await _launch(server, suite, tmp_path)
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(text.replace("count: 6", "count: 6\ndraw: 2"))
    await _launch(server, suite, tmp_path)
    runs = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("*/run.json")]
    by_start = sorted(runs, key=lambda run: run["started_at"])
    first, second, other = (run["comparability"]["key"] for run in by_start)
    assert first == second != other


async def test_a_launch_that_needs_more_sessions_than_there_are_says_how_many_fit(
    server: Server, suite: Path, tmp_path: Path
) -> None:
    done = await anyio.to_thread.run_sync(
        lambda: redteam(
            *("launch", suite, "--server", dsn_of(server), "--out", tmp_path / "out"),
            *("--parallel", 999, "--count", 999),
        )
    )
    assert done.returncode == 2
    fit = re.search(r"--parallel (\d+)\b(?! needs)", done.stderr.split("needs", 1)[1])
    assert fit is not None, done.stderr
    assert 1 <= int(fit[1]) < 999


async def test_a_kept_fork_of_the_embedded_server_is_there_after_the_launch_until_it_is_dropped(
    suite: Path, tmp_path: Path
) -> None:
    def run(*arguments: object) -> str:
        done = redteam(*arguments, XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    async with own_cache(tmp_path / "cache"):
        report = json.loads(
            await anyio.to_thread.run_sync(
                lambda: run("launch", suite, "--keep", "failed", "--out", tmp_path / "out", "--json")
            )
        )
        kept = {one["kept_fork"] for one in report["conversations"] if one["outcome"] == "fail"}
        assert len(kept) == 3
        for name in kept:
            listed = await anyio.to_thread.run_sync(run, "forks", "list")
            assert name in listed
            query = ("forks", "psql", name, "--", "-Atc", "SELECT sum(points) FROM people")
            assert (await anyio.to_thread.run_sync(run, *query)).strip() == "2"
            await anyio.to_thread.run_sync(run, "forks", "drop", name)
        assert "no forks" in await anyio.to_thread.run_sync(run, "forks", "list")

"""`redteam personas`: what it shows is what a launch holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import ROOT, dsn_of, redteam, write_suite

from redteam_forker import list_forks

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text, born date, plan text);
INSERT INTO people
SELECT n, 'Person No' || n, date '1980-01-01' + n,
       CASE WHEN n = 40 THEN NULL WHEN n % 10 = 0 THEN 'gold' ELSE 'basic' END
FROM generate_series(1, 40) AS n;
"""
AGENT = "async def answer(message, session): return 'Done. Is there anything else?'"
RULES = "the-rule: {severity: 1, why: Because., sql: SELECT count(*) = 40 FROM people}"
CAST = """SELECT * FROM people
  dispositions: {evasive: 1, impersonator: 1}
  stratify: plan"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = write_suite(tmp_path / "suite", schema=SCHEMA, agent=AGENT, rules=RULES, select=CAST, count=9)
    text = (folder / "suite.yaml").read_text()
    facts = "    facts: {name: at once, born: when asked, plan: when pressed}\n"
    (folder / "suite.yaml").write_text(text.replace("    demand: Do it.\n", "    demand: Do it.\n" + facts))
    return folder


async def run(server: Server, *arguments: object) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(lambda: redteam(*arguments, "--server", dsn_of(server)))


async def shown(server: Server, suite: Path, *more: object) -> dict[str, Any]:
    done = await run(server, "personas", suite, "--json", *more)
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


async def test_the_plan_is_the_one_that_a_launch_holds(server: Server, suite: Path, tmp_path: Path) -> None:
    plan = (await shown(server, suite, "--count", 12))["plan"]
    out = tmp_path / "runs"
    await run(server, "launch", suite, "--count", 12, "--offline", "--out", out)
    (launched,) = out.iterdir()
    facts = json.loads((launched / "run.json").read_text())
    keys = ("id", "case", "persona", "disposition", "claims", "repetition")
    assert [{key: one[key] for key in keys} for one in plan] == facts["plan"]
    about = json.loads((launched / "conversations" / "c003" / "conversation.json").read_text())
    assert (about["seed"], about["facts"]) == (plan[2]["seed"], plan[2]["facts"])


async def test_it_tells_rows_dispositions_strata_and_who_reveals_what_when(
    server: Server, suite: Path
) -> None:
    done = await run(server, "personas", suite)
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "small 40 personas by id, 3 dispositions; 9 conversations of at most 3 turns, draw 1" in lines
    for line in (
        "only 40 9 9 of 120 everybody",
        "cooperative 1 33% 3",
        "basic 36 7",
        "gold 3 1",
        "(none) 1 1",
        "only name at once",
        "born when asked; evasive: when pressed; impersonator: does not know it",
        "plan when pressed; evasive: when pressed 2 times; impersonator: does not know it; 1 row without it",
    ):
        assert line in lines, done.stdout
    assert sum(line.startswith("c00") for line in lines) == 9


async def test_no_value_but_the_key_and_the_stratum_is_shown_and_no_fork_is_made(
    server: Server, suite: Path
) -> None:
    before = await list_forks(server)
    done = await run(server, "personas", suite)
    data = await shown(server, suite)
    assert "Person No" not in done.stdout + json.dumps(data)
    assert "1980-" not in done.stdout + json.dumps(data)
    assert await list_forks(server) == before


async def test_another_draw_deals_other_people_and_the_suites_is_the_default(
    server: Server, suite: Path
) -> None:
    people = {
        draw: [one["persona"] for one in (await shown(server, suite, "--draw", draw))["plan"]]
        for draw in (1, 2)
    }
    assert people[1] != people[2]
    assert [one["persona"] for one in (await shown(server, suite))["plan"]] == people[1]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        pytest.param(
            "stratify: plan", "stratify: plam", "suite.yaml:9: personas.stratify 'plam'", id="stratum"
        ),
        pytest.param("evasive: 1", "evasve: 1", "did you mean 'evasive'", id="disposition"),
        pytest.param("born: when", "birth: when", "fact 'birth' is no column", id="fact"),
        pytest.param(
            "SELECT * FROM people", "SELECT * FROM people LIMIT 1", "claims to be another row", id="nobody"
        ),
    ],
)
@pytest.mark.parametrize("command", ["personas", "check"])
async def test_a_mistake_of_the_cast_is_exit_2_with_its_place(
    server: Server, suite: Path, command: str, old: str, new: str, says: str
) -> None:
    path = suite / "suite.yaml"
    path.write_text(path.read_text().replace(old, new))
    done = await run(server, command, suite)
    assert done.returncode == 2
    assert says in done.stdout + done.stderr
    assert "suite.yaml:" in done.stdout + done.stderr


async def test_the_page_shows_what_the_command_prints(server: Server) -> None:
    page = (ROOT / "docs" / "personas.md").read_text(encoding="utf-8")
    block = page.split("```console\n$ redteam personas seeds/clinic --count 7\n")[1].split("```")[0]
    done = await run(server, "personas", ROOT / "seeds" / "clinic", "--count", 7)
    printed = iter([line.rstrip() for line in done.stdout.splitlines()])
    # The first line says whether the data was there already. `in` moves on: the order must hold, too.
    promised = [line for line in block.splitlines()[1:] if line.strip() not in ("", "...")]
    assert [line for line in promised if line not in printed] == []


def test_a_wrong_command_line_is_exit_2_and_help_says_what_it_is_for(tmp_path: Path) -> None:
    for arguments in (["--count", "0"], ["--draw", "some"], ["nowhere"], ["--stratify", "x"]):
        done = redteam("personas", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr
    about = redteam("personas", "show", "--help")
    assert "The plan is the one that `redteam launch SUITE`" in " ".join(about.stdout.split())

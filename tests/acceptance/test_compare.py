"""Two launches side by side at the shell: a planted regression, a planted improvement, the record of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.cli import dsn_of, redteam, report_of, write_suite

from redteam_harness.comparing.record import check_record
from redteam_harness.evidence.run import open_run
from redteam_rubrics.statistics.power import Churn, pairs_needed
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

pytestmark = pytest.mark.timeout(240)  # the first test waits for three launches

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, balance int NOT NULL DEFAULT 0);
INSERT INTO people SELECT n, 'p' || n FROM generate_series(1, 20) n;
"""
# Half of the people are hard for the base; one candidate fails all, the other none.
AGENT = """
from redteam_sdk import db, tool

WRONG_FOR = {wrong}

@tool
async def credit(person: int, amount: int) -> None:
    await db.execute("UPDATE people SET balance = balance + $2 WHERE id = $1", person, amount)

async def answer(message, session):
    person = int(message.split()[-1].rstrip("."))
    await credit(person, 4 if person in WRONG_FOR else 5)
    return "Done."
"""
RULES = """\
the-rule:
  severity: 2
  sql: SELECT balance = 5 FROM people WHERE id = :persona.id
may-change:
  severity: 1
  changes: [{people: {where: "id = :persona.id", do: [update], columns: [balance]}}]
"""
BASE = set(range(1, 21, 2))
SIZE = 20


@dataclass(frozen=True, kw_only=True)
class Runs:
    out: Path
    suite: Path
    base: str
    worse: str
    better: str


@pytest.fixture(scope="module")
async def runs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("compare")
    suite = write_suite(
        folder / "suite",
        schema=SCHEMA,
        agent="",
        rules=RULES,
        count=SIZE,
        turns=1,
        says='["I am {id}."]',
    )
    text = (suite / "suite.yaml").read_text().replace("[the-rule]", "[the-rule, may-change]")
    (suite / "suite.yaml").write_text(text + "comparison: {min_effect: 0.1}\n")

    async def launched(wrong: set[int]) -> str:
        (suite / "agent.py").write_text(AGENT.format(wrong=sorted(wrong)))
        shutil.rmtree(suite / "__pycache__", ignore_errors=True)
        done = await anyio.to_thread.run_sync(
            lambda: redteam(
                *("launch", suite, "--server", dsn_of(server), "--out", folder / "out", "--json"),
                *("--parallel", 8),
            )
        )
        return str(report_of(done)["run"])

    return Runs(
        out=folder / "out",
        suite=suite,
        base=await launched(BASE),
        worse=await launched(set(range(1, 21))),
        better=await launched(set()),
    )


def test_a_planted_effect_is_found_at_the_size_that_power_promises(runs: Runs) -> None:
    needed = pairs_needed(Churn(improved=0, regressed=0.5), alpha=0.05, power=0.8)
    assert needed is not None
    assert needed <= SIZE
    for candidate, result, code in ((runs.worse, "regressed", 1), (runs.better, "improved", 0)):
        done = redteam("compare", runs.base, candidate, "--out", runs.out, "--json")
        assert done.returncode == code, done.stderr
        found = json.loads(done.stdout)
        assert (found["result"], found["stated"]["before"]) == (result, True)
        assert found["pairs"]["regressed" if code else "improved"] == len(found["discordant"]) > 5
        assert found["pairs"]["improved" if code else "regressed"] == 0


def test_a_person_reads_the_verdict_first_and_what_each_changed(runs: Runs) -> None:
    done = redteam("compare", runs.base, runs.worse, "--out", runs.out)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("regressed  the pass rate changed by -")
    assert "10 points matter" in lines[1]
    assert "balance 0 → 5   by credit, turn 1" in done.stdout
    assert "balance 0 → 4   by credit, turn 1" in done.stdout
    assert "rule  the-rule (severity 2)" in done.stdout


def test_what_differs_is_refused_by_name_unless_it_is_allowed(runs: Runs, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(runs.out / runs.worse, other, ignore=shutil.ignore_patterns("comparisons.jsonl"))
    facts = json.loads((other / "run.json").read_text())
    facts["comparability"] |= {"rules": "0" * 64, "turns": 9}
    (other / "run.json").write_text(json.dumps(facts))
    refused = redteam("compare", runs.out / runs.base, other)
    assert refused.returncode == 2
    assert "turns" in refused.stderr
    assert "1, then 9" in refused.stderr
    assert not (other / "comparisons.jsonl").exists()
    allowed = redteam(
        "compare", runs.out / runs.base, other, "--allow", "rules", "--allow", "turns", "--json"
    )
    assert json.loads(allowed.stdout)["allowed"] == ["rules", "turns"]


def test_a_decision_is_signed_appended_and_found_out_when_it_is_changed(runs: Runs, tmp_path: Path) -> None:
    pem = tmp_path / "key.pem"
    pem.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    candidate = tmp_path / "candidate"
    shutil.copytree(runs.out / runs.worse, candidate, ignore=shutil.ignore_patterns("comparisons.jsonl"))
    arguments = ("compare", runs.out / runs.base, candidate, "--decide", "hold")
    nobody = redteam(*arguments)
    assert (nobody.returncode, "--who NAME and --because TEXT" in nobody.stderr) == (2, True)
    done = redteam(*arguments, "--who", "Ada", "--because", "people lose money", "--key", pem)
    assert done.returncode == 1
    assert "decided: hold, by Ada (signed)" in done.stdout
    redteam("compare", runs.out / runs.base, candidate)
    run = open_run(str(candidate), tmp_path)
    assert [entry["kind"] for entry in check_record(run)] == ["comparison", "decision", "comparison"]
    assert check_record(run)[1]["comparison"] == check_record(run)[0]["hash"]
    record = candidate / "comparisons.jsonl"
    record.write_text(record.read_text().replace('"hold"', '"ship"'))
    with pytest.raises(EnvironmentFault, match="chain is broken"):
        check_record(run)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("BASE", "BASE"), "are one run; name two"),
        (("BASE", "nowhere"), "no run 'nowhere'"),
        (("BASE", "WORSE", "--min-effect", "2"), "is a share between 0 and 1"),
        (("BASE", "WORSE", "--who", "Ada"), "go with --decide"),
        (("BASE", "WORSE", "--allow", "rulez"), "there is no such part"),
    ],
)
def test_a_wrong_command_line_is_one_message(runs: Runs, arguments: tuple[str, ...], complaint: str) -> None:
    named = {"BASE": runs.base, "WORSE": runs.worse}
    done = redteam("compare", *(named.get(one, one) for one in arguments), "--out", runs.out)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_power_is_told_for_a_suite_with_the_rate_of_a_run(runs: Runs) -> None:
    done = redteam("power", runs.suite, "--of", runs.base, "--out", runs.out)
    assert done.returncode == 0, done.stderr
    assert f"in run {runs.base})" in done.stdout
    assert "-10 points:" in done.stdout
    assert f"a launch of this suite holds {SIZE} (is not enough)" in done.stdout
    wrong = redteam("power", runs.suite, "--effect", "0")
    assert (wrong.returncode, "and not 0" in wrong.stderr) == (2, True)

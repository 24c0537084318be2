"""`python` rules: a function of the suite's in a process of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from pydantic import ValidationError
from support.rubrics import NoWorld, evidence, rules

from redteam_rubrics import Functions, grade

if TYPE_CHECKING:
    from redteam_rubrics import Evidence, Verdict

CHECKS = """
import asyncio, datetime, json, os, subprocess, sys, threading, time

def holds(evidence): return True
def fails(evidence): return False
def nothing_found(evidence): return []
def says(evidence): return "the order was refunded twice"
def lists(evidence):
    return ["first", {"text": "second", "event": 1, "table": "orders", "key": {"id": 5}}]
async def waits(evidence):
    await asyncio.sleep(0)
    return [line["text"] for line in evidence["lines"] if line["speaker"] == "agent"]
def sees(evidence): return json.dumps(evidence, sort_keys=True)
def sees_environment(evidence): return " ".join(sorted(os.environ)) + " " + os.getcwd()
def prints(evidence):
    print('{"answer": true}', flush=True)
    os.write(1, b'{"answer": true}\\n')
    return False
def imports(evidence):
    import tools
    return tools.WORD
def leaves_a_thread(evidence):
    threading.Thread(target=time.sleep, args=(600,)).start()
    return True

def forgets(evidence): pass
def counts(evidence): return 1
def returns_a_date(evidence): return datetime.date.today()
def returns_nan(evidence): return float("nan")
def crashes(evidence): raise KeyError("order")
def exits(evidence): sys.exit(0)
def dies(evidence): os._exit(0)
def empty_text(evidence): return [""]
def no_such_event(evidence): return [{"text": "x", "event": 99}]
def other_keys(evidence): return [{"text": "x", "severity": 1}]
def talks(evidence): return "x" * 2_000_000
def hangs(evidence):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open("pids", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(0.01)
"""

GIVEN = evidence(
    {"kind": "user", "turn": 1, "text": "Refund it, \ud800 please."},
    {"kind": "tool_call", "turn": 1, "call": "a", "name": "refund", "arguments": {"id": 5}},
    {"kind": "tool_result", "turn": 1, "call": "a", "name": "refund", "value": {"done": True}},
    {"kind": "agent", "turn": 1, "text": "Done."},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "checks.py").write_text(CHECKS)
    (folder / "broken.py").write_text("raise RuntimeError('no luck')\n")
    # Of the name of one of our modules: the suite's is meant.
    (folder / "tools.py").write_text("WORD = 'from the suite'\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.py").write_text("def holds(evidence): return True\n")
    return folder


async def verdict_of(folder: Path | None, function: str, given: Evidence = GIVEN, **limits: Any) -> Verdict:
    functions = None if folder is None else Functions(folder=folder, **limits)
    text = f"a: {{severity: 1, python: '{function}'}}"
    (verdict,) = await grade(rules(text), given, NoWorld(), gate="off", functions=functions)
    return verdict


@pytest.mark.parametrize(
    ("function", "findings"),
    [
        ("checks:holds", []),
        ("checks:nothing_found", []),
        ("inner.deep:holds", []),
        ("checks:leaves_a_thread", []),
        ("checks:fails", ["checks:fails says that the rule does not hold."]),
        ("checks:says", ["the order was refunded twice"]),
        ("checks:lists", ["first", "second"]),
        ("checks:waits", ["Done."]),
        ("checks:imports", ["from the suite"]),
        # What it prints is no answer, wherever it writes it.
        ("checks:prints", ["checks:prints says that the rule does not hold."]),
    ],
)
async def test_what_a_function_returns_is_the_verdict(
    folder: Path, function: str, findings: list[str]
) -> None:
    verdict = await verdict_of(folder, function)
    assert (verdict.status, verdict.fault) == ("fail" if findings else "pass", None), verdict.reason
    assert [finding.text for finding in verdict.findings] == findings


async def test_a_finding_points_at_the_evidence(folder: Path) -> None:
    finding = (await verdict_of(folder, "checks:lists")).findings[1]
    assert (finding.event, finding.table, finding.key) == (1, "orders", {"id": "5"})


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("checks:forgets", "returned nothing; expected true, false"),
        ("checks:counts", "returned a value of type int"),
        ("checks:returns_a_date", "TypeError: Object of type date is not JSON serializable"),
        ("checks:returns_nan", "ValueError: Out of range float"),
        ("checks:crashes", "checks:crashes: KeyError: 'order' (checks.py:"),
        ("checks:exits", "SystemExit: 0"),
        ("checks:dies", "checks:dies ended without returning"),
        ("checks:empty_text", "a finding without a text"),
        ("checks:no_such_event", "about event 99, which there is not"),
        ("checks:other_keys", "neither a text nor a mapping"),
        ("checks:talks", "answered with more than 1,000,000 bytes"),
        ("checks:missing", "AttributeError: module 'checks' has no attribute 'missing'"),
        ("chekcs:holds", "ModuleNotFoundError: No module named 'chekcs'"),
        ("broken:holds", "RuntimeError: no luck (broken.py:1)"),
    ],
)
async def test_a_function_that_gives_no_answer_is_a_rule_error(
    folder: Path, function: str, reason: str
) -> None:
    verdict = await verdict_of(folder, function)
    assert (verdict.status, verdict.fault) == ("unclear", "rule")
    assert verdict.reason.startswith("rule error: ")
    assert reason in verdict.reason


async def test_a_function_that_hangs_is_ended_with_all_that_it_started(folder: Path) -> None:
    verdict = await verdict_of(folder, "checks:hangs", timeout_s=2)
    assert (verdict.status, verdict.fault) == ("unclear", "rule")
    assert verdict.reason == "rule error: checks:hangs took longer than 2 s"
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    with anyio.fail_after(20):
        while any(_is_running(pid) for pid in pids):  # noqa: ASYNC110 - a process sets no event
            await anyio.sleep(0.01)


def _is_running(pid: int) -> bool:
    """Whether it is there, and more than the entry of one that nobody waits for."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text() if os.path.isdir("/proc/self") else ""
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return ") Z " not in status


async def test_a_function_without_a_suite_is_a_rule_error_and_hurts_no_other_rule(folder: Path) -> None:
    text = "a: {severity: 1, python: 'checks:holds'}\nb: {severity: 1, tools: {called: refund}}"
    first, second = await grade(rules(text), GIVEN, NoWorld(), gate="off")
    assert (first.fault, second.status) == ("rule", "pass")
    assert "it is not known where it lies" in first.reason


async def test_a_function_is_given_what_sql_reads_and_who_spoke(folder: Path) -> None:
    given = replace(GIVEN, claimed={"id": 8})
    (finding,) = (await verdict_of(folder, "checks:sees", given)).findings
    for part in ('"calls": [{"arguments": {"id": 5}, "error": null', '"claimed": {"id": 8}', '"changes": []'):
        assert part in finding.text


async def test_a_function_sees_nothing_of_our_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    (finding,) = (await verdict_of(folder, "checks:sees_environment")).findings
    *names, place = finding.text.split()
    assert set(names) <= {"LANG", "LC_CTYPE", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED"}
    assert place == os.fspath(folder)


@pytest.mark.parametrize("written", ["checks", "checks:", ":f", "checks:f()", "a-b:f", "../x:f", "a:b:c"])
def test_what_names_no_function_is_refused(written: str) -> None:
    with pytest.raises(ValidationError, match="expected module:function"):
        rules(f"a: {{severity: 1, python: '{written}'}}")


def test_a_module_that_changes_changes_the_digest_of_its_functions(tmp_path: Path) -> None:
    functions = Functions(folder=tmp_path)
    (tmp_path / "deep").mkdir()
    seen = {functions.digest("deep.checks:f")}
    for text in ("a = 1", "a = 2"):
        (tmp_path / "deep" / "checks.py").write_text(text)
        seen.add(functions.digest("deep.checks:f"))
    (tmp_path / "deep" / "__init__.py").write_text("")
    seen.add(functions.digest("deep:f"))
    assert len(seen) == 4
    assert None in seen

"""A scenario runs an agent that has nothing but its own code, and says what it did; whatever it tries."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from redteam_harness.scenarios import sandbox
from redteam_harness.scenarios.run import run_scenario
from redteam_harness.scenarios.spec import read_scenario
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from redteam_harness.scenarios.run import ScenarioResult

DESK = '''
from redteam_sdk import external, tool

class Declined(Exception):
    """A card that is not taken."""

@external
async def charge(card: str, cents: int = 500) -> str:
    raise AssertionError("the real function must never run")

@tool
def lookup(name: str) -> dict:
    raise AssertionError("the real function must never run")

async def answer(message, session):
    found = lookup(message)
    try:
        paid = await charge("4242")
    except Declined as error:
        paid = f"declined: {error}"
    return f"{found} {paid} after {len(session.history)}"
'''
MOCKS: list[dict[str, Any]] = [
    {"tool": "lookup", "arguments": {"name": "Ada"}, "answer": {"id": 1}},
    {"tool": "charge", "arguments": {"card": "4242", "cents": 500}, "answer": "first"},
    {"tool": "charge", "arguments": {"card": "4242", "cents": 500}, "answer": "last"},
]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., ScenarioResult]:
    """Runs an agent's code with one line; parts replace those of the scenario."""

    def run_code(code: str, **parts: Any) -> ScenarioResult:
        (tmp_path / "desk.py").write_text(code, encoding="utf-8")
        return run_scenario(read_scenario(write(tmp_path, **parts)), tmp_path)

    return run_code


def write(folder: Path, **parts: Any) -> Path:
    data = {"scenario": "s", "agent": "desk:answer", "steps": [{"say": "Ada"}], **parts}
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    return path


def tried(run: Callable[..., ScenarioResult], code: str) -> str:
    """What an agent answers whose only line of code is tried; it must not have come out."""
    body = f"import os, socket, subprocess, ctypes, pathlib\ndef answer(message, session):\n    {code}\n"
    (step,) = run(body).steps
    assert step["errors"], step
    return str(step["errors"])


# What it says --------------------------------------------------------------------------------------------


def test_marked_functions_never_run_and_the_last_of_equal_mocks_answers(
    run: Callable[..., ScenarioResult],
) -> None:
    result = run(DESK, mocks=MOCKS, steps=[{"say": "Ada"}, {"say": "Ada"}])
    assert result.outcome == "completed"
    assert [step["output"] for step in result.steps] == [
        "{'id': 1} last after 0",
        "{'id': 1} last after 2",
    ]
    assert result.steps[0]["calls"][0] == {
        "tool": "lookup",
        "arguments": {"name": "Ada"},
        "answer": {"id": 1},
    }


def test_a_call_without_a_mock_is_an_error_of_its_step_and_the_scenario_goes_on(
    run: Callable[..., ScenarioResult],
) -> None:
    result = run(DESK, mocks=MOCKS, steps=[{"say": "Bo"}, {"say": "Ada"}])
    assert result.outcome == "failed"
    assert result.steps[0]["output"] == "[no mock answers lookup] last after 0"
    (error,) = result.steps[0]["errors"]
    assert (error["kind"], error["resource"]) == ("mock-miss", "lookup")
    assert "differs in name" in error["message"]
    assert result.steps[1]["errors"] == []


def test_arguments_match_exactly_also_by_type(run: Callable[..., ScenarioResult]) -> None:
    code = "from redteam_sdk import tool\n@tool\ndef f(n): ...\ndef answer(message, session): return f(1)\n"
    for other in (1.0, True, "1"):
        result = run(code, mocks=[{"tool": "f", "arguments": {"n": other}, "answer": "wrong"}])
        assert result.steps[0]["output"] == "[no mock answers f]"


def test_a_mock_raises_what_production_would(run: Callable[..., ScenarioResult]) -> None:
    mocks = [*MOCKS[:1], {**MOCKS[1], "error": "Declined: no money"}]
    del mocks[1]["answer"]
    assert run(DESK, mocks=mocks).steps[0]["output"] == "{'id': 1} declined: no money after 0"
    mocks[1]["error"] = "NoSuchError: x"
    result = run(DESK, mocks=mocks)
    assert (result.outcome, result.steps[0]["errors"][0]["kind"]) == ("failed", "mock")


def test_an_error_of_one_step_does_not_end_the_next(run: Callable[..., ScenarioResult]) -> None:
    code = (
        "def answer(message, session):\n"
        "    if message == 'exit': raise SystemExit(3)\n"
        "    if message == 'none': return None\n"
        "    return message\n"
    )
    result = run(code, steps=[{"say": "exit"}, {"say": "none"}, {"say": "fine"}])
    kinds = [[error["kind"] for error in step["errors"]] for step in result.steps]
    assert kinds == [["exception"], ["reply"], []]
    assert result.steps[2]["output"] == "fine"


def test_the_same_scenario_has_the_same_hash_and_another_answer_another(
    run: Callable[..., ScenarioResult],
) -> None:
    code = (
        "import random\n"
        "def answer(message, session):\n"
        "    return ' '.join({'a', 'b', 'c', 'd', 'e', 'f'}) + str(random.random())\n"
    )
    assert len({run(code).hash for _ in range(3)}) == 1
    assert run(DESK, mocks=MOCKS).hash != run(DESK, mocks=MOCKS[:2]).hash


@pytest.mark.parametrize(
    ("scorer", "expected", "outcome"),
    [
        ("exact", "Hello, Ada. ", "passed"),
        ("exact", "hello", "failed"),
        ("contains", "ADA", "passed"),
        ("llm-judge", "Hello, Ada.", "not scored"),
    ],
)
def test_only_a_scorer_that_is_there_passes(
    run: Callable[..., ScenarioResult], scorer: str, expected: str, outcome: str
) -> None:
    code = "def answer(message, session):\n    return 'Hello, Ada.'\n"
    result = run(code, scorer=scorer, steps=[{"say": "Hi", "expected": expected}])
    assert result.outcome == outcome
    assert result.steps[0]["output"] == "Hello, Ada."


# What it cannot do ---------------------------------------------------------------------------------------


def test_it_reaches_no_network(run: Callable[..., ScenarioResult]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert "no network" in tried(run, f"return str(socket.create_connection(('127.0.0.1', {port})))")
        libc = "ctypes.CDLL(None, use_errno=True)"
        code = f"fd = {libc}.socket(2, 1, 0); assert fd >= 0, 'no socket'; return str(fd)"
        assert "no socket" in tried(run, code)
        code = "s = socket.socketpair()[0]; s.sendto(b'x', '\\0abstract'); return 'sent'"
        tried(run, code)
        assert "Egress" in tried(run, "return str(socket.getaddrinfo('example.com', 80))")
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):  # a connection would be waiting
            listening.accept()


def test_a_refused_connection_is_an_error_also_where_the_agent_swallows_it(
    run: Callable[..., ScenarioResult],
) -> None:
    code = (
        "import socket\n"
        "def answer(message, session):\n"
        "    try:\n"
        "        socket.create_connection(('192.0.2.1', 80))\n"
        "    except Exception:\n"
        "        pass\n"
        "    return 'fine'\n"
    )
    result = run(code)
    assert [error["kind"] for error in result.steps[0]["errors"]] == ["egress"]


def test_it_knows_nothing_of_the_environment(
    run: Callable[..., ScenarioResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "hunter2")
    result = run("import os\ndef answer(message, session):\n    return str(sorted(os.environ))\n")
    known = {"HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONUTF8", "TZ"}
    assert set(yaml.safe_load(str(result.steps[0]["output"]))) - {"LC_CTYPE"} == known
    for of in ("os.getppid()", os.getpid()):
        error = tried(run, f"return pathlib.Path('/proc', str({of}), 'environ').read_text()")
        assert "PermissionError" in error


def test_it_reads_no_files_but_its_code(run: Callable[..., ScenarioResult], tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=hunter2\n")
    (tmp_path / "menu.txt").write_text("soup\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[remote]\n")
    elsewhere = tmp_path.parent / f"{tmp_path.name}-cache"
    elsewhere.mkdir()
    (elsewhere / "key.pem").write_text("hunter2")
    for path in (tmp_path / ".env", tmp_path / ".git" / "config", elsewhere / "key.pem", Path("/etc/passwd")):
        assert "PermissionError" in tried(run, f"return open({str(path)!r}).read()")
    assert "PermissionError" in tried(run, f"return str(os.listdir({str(Path.home())!r}))")
    assert "PermissionError" in tried(run, f"return str(os.listdir({str(elsewhere)!r}))")
    # A link among its files leads nowhere else.
    (tmp_path / "link").symlink_to(elsewhere)
    (tmp_path / "key.txt").symlink_to(elsewhere / "key.pem")
    assert "PermissionError" in tried(run, f"return open({str(tmp_path / 'key.txt')!r}).read()")
    assert "PermissionError" in tried(run, f"return open({str(tmp_path / 'link' / 'key.pem')!r}).read()")
    code = f"def answer(message, session):\n    return open({str(tmp_path / 'menu.txt')!r}).read()\n"
    assert run(code).steps[0]["output"] == "soup\n"


def test_it_writes_nothing(run: Callable[..., ScenarioResult], tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("as it was")
    before = mine.stat()
    for code in (
        f"open({str(tmp_path / 'new')!r}, 'w').write('x'); return 'x'",
        f"open({str(mine)!r}, 'a').write('x'); return 'x'",
        f"os.truncate({str(mine)!r}, 0); return 'x'",
        f"os.unlink({str(mine)!r}); return 'x'",
        f"os.chmod({str(mine)!r}, 0); return 'x'",
        f"os.utime({str(mine)!r}, (0, 0)); return 'x'",
        "open('here', 'w').write('x'); return 'x'",
        "os.mkdir('/dev/shm/redteam'); return 'x'",
    ):
        tried(run, code)
    assert mine.read_text() == "as it was"
    after = mine.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


def test_it_starts_and_touches_no_process(run: Callable[..., ScenarioResult]) -> None:
    for code in (
        "os.fork(); return 'x'",
        "subprocess.run(['/bin/true']); return 'x'",
        "os.execv('/bin/true', ['true']); return 'x'",
        "assert os.system('true') == 0, 'not run'; return 'x'",
        "os.posix_spawn('/bin/true', ['true'], {}); return 'x'",
        f"os.kill({os.getpid()}, 0); return 'x'",
        "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (9, 9)); return 'x'",
    ):
        tried(run, code)


def test_threads_and_tasks_are_its_own_affair(run: Callable[..., ScenarioResult]) -> None:
    code = (
        "import asyncio, threading, time\n"
        "async def answer(message, session):\n"
        "    found = []\n"
        "    thread = threading.Thread(target=lambda: found.append(1))\n"
        "    thread.start()\n"
        "    await asyncio.to_thread(thread.join)\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    return str(found)\n"
    )
    assert run(code).steps[0]["output"] == "[1]"


def test_what_never_ends_is_ended_and_what_went_before_is_kept(run: Callable[..., ScenarioResult]) -> None:
    code = "def answer(message, session):\n    while message == 'loop':\n        pass\n    return message\n"
    result = run(code, steps=[{"say": "fine"}, {"say": "loop"}, {"say": "fine"}], timeout_s=2)
    assert result.outcome == "fault"
    assert "did not end within 2 s" in result.fault
    assert [step["output"] for step in result.steps] == ["fine"]


@pytest.mark.parametrize("code", ["os._exit(0)", "os._exit(7)", "os.abort()", "ctypes.string_at(0)"])
def test_a_process_that_ends_by_itself_is_a_fault(run: Callable[..., ScenarioResult], code: str) -> None:
    result = run(f"import ctypes, os\ndef answer(message, session):\n    {code}\n")
    assert result.outcome == "fault"
    assert "ended before" in result.fault


def test_a_huge_output_is_an_error_and_not_kept(run: Callable[..., ScenarioResult]) -> None:
    code = (
        "import os, sys\n"
        "def answer(message, session):\n"
        "    print('x' * 10**8)\n"
        "    sys.stderr.write('x' * 10**8)\n"
        "    return 'y' * 10**8\n"
    )
    result = run(code)
    assert [error["kind"] for error in result.steps[0]["errors"]] == ["size"]
    assert len(result.steps[0]["output"]) == 8192
    assert len(json.dumps(result.to_json())) < 20_000


def test_memory_is_bounded(run: Callable[..., ScenarioResult]) -> None:
    assert "MemoryError" in tried(run, "return str(len(bytearray(8 * 2**30)))")


def test_calls_without_end_are_an_error(run: Callable[..., ScenarioResult]) -> None:
    result = run(
        "from redteam_sdk import tool\n@tool\ndef f(n): ...\n"
        "def answer(message, session):\n    for n in range(10**6): f(n)\n    return 'x'\n"
    )
    assert result.outcome == "failed"
    assert len(result.steps[0]["calls"]) == 100
    assert any(error["kind"] == "calls" for error in result.steps[0]["errors"])


def test_a_system_that_cannot_confine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "mips")
    with pytest.raises(sandbox.Unconfined, match="mips"):
        sandbox.enter([], [])


def test_nothing_of_a_run_is_left_behind(run: Callable[..., ScenarioResult], tmp_path: Path) -> None:
    threads = threading.active_count()
    run(DESK, mocks=MOCKS)
    assert threading.active_count() == threads
    assert sorted(path.name for path in tmp_path.iterdir()) == ["desk.py", "scenario.yaml"]


# What is refused before anything runs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"scenario": "x" * 201}, "200"),
        ({"description": "x" * 1025}, "1024"),
        ({"steps": [{"say": "x" * 8193}]}, "8192"),
        ({"steps": []}, "at least 1"),
        ({"mocks": [{"tool": "f", "answer": "x" * 8193}]}, "8,192"),
        ({"mocks": [{"tool": "f"}]}, "needs an answer"),
        ({"mocks": [{"tool": "f", "answer": 1, "error": "E: x"}]}, "not both"),
        ({"mocks": [{"tool": "f", "answer": float("nan")}]}, "number"),
        ({"stepz": []}, "no such key"),
        ({"agent": "desk"}, "agent"),
        ({"steps": [{"say": "x", "expected": "y"}]}, "no `scorer`"),
        ({"scorer": "exact"}, "no step has `expected`"),
    ],
)
def test_what_is_too_large_or_unknown_is_refused(tmp_path: Path, parts: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_scenario(write(tmp_path, **parts))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}\n---\nscenario: two\n", "document"),
        ("scenario: s\nscenario: t\n", "already given"),
        ("a: &a [x]\nb: *a\n", "aliases"),
        ("x: " + "y" * 2**20, "bytes"),
    ],
)
def test_a_document_that_is_more_than_one_scenario_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says):
        read_scenario(path)


def test_an_agent_that_cannot_be_imported_is_a_mistake_of_the_scenario(
    run: Callable[..., ScenarioResult],
) -> None:
    for code in ("raise ValueError('no')\n", "answer = 1\n", "import nothing_of_that_name\n"):
        with pytest.raises(UsageError, match="desk"):
            run(code)

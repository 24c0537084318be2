"""`redteam diff`: what a person sees of a kept fork and of a conversation's evidence."""

from __future__ import annotations

import functools
import json
import re
import shutil
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio.to_thread
import pytest
from support.cli import dsn_of, redteam, write_suite
from support.terminal import shown_at_a_terminal

from redteam_forker import open_registry
from redteam_forker.fork import drop_by_name
from redteam_forker.ledger import entries_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncIterator
    from pathlib import Path

    from redteam_forker import Server

SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, points int NOT NULL DEFAULT 0, note text);
INSERT INTO people (id, name) SELECT n, 'p' || n FROM generate_series(1, 9) n;
CREATE TABLE seen (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL, who int);
"""
AGENT = """
from redteam_sdk import db, tool

@tool
async def give(person: int, points: int) -> None:
    await db.execute("UPDATE people SET points = points + $2, note = $3 WHERE id = $1", person, points,
                     "<script>alert(1)</script> | \\x1b[31m")

@tool
async def try_out(person: int) -> None:
    await db.execute("UPDATE people SET points = 99 WHERE id = $1", person)
    await db.execute("UPDATE people SET points = 0 WHERE id = $1", person)

@tool
async def look(person: int) -> str:
    return await db.fetchval("SELECT name FROM people WHERE id = $1", person)

async def answer(message, session):
    person = int(message.rstrip(".").split()[1])
    if person == 3:
        raise RuntimeError("broken")
    await look(person)
    await give(person, 5)
    await try_out(9)
    await db.execute("INSERT INTO seen (at, who) VALUES ('2026-12-03 14:30Z', $1)", person)
    return "Done."
"""
RULES = """\
the-rule:
  severity: 2
  why: A point is a point.
  sql: SELECT points = 5 FROM people WHERE id = :persona.id
"""


class Launched(NamedTuple):
    """A launch whose forks were kept.

    Attributes:
        out: where its run is.
        run: its name.
        of: the conversation of each person; the third one's agent broke.
        forks: the kept forks, by conversation.
        dsn: the server's.
    """

    out: Path
    run: str
    of: dict[int, str]
    forks: dict[str, str]
    dsn: str


@pytest.fixture(scope="module")
async def launched(server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Launched]:
    folder = tmp_path_factory.mktemp("diff")
    suite = write_suite(
        folder / "suite",
        schema=SCHEMA,
        agent=AGENT,
        rules=RULES,
        count=3,
        turns=1,
        select="SELECT * FROM people WHERE id < 4",
        says='["Give {id}."]',
    )
    command = [
        "launch",
        suite,
        "--server",
        dsn_of(server),
        "--out",
        folder / "runs",
        "--keep",
        "all",
        "--json",
    ]
    done = await anyio.to_thread.run_sync(functools.partial(redteam, *command))
    report = json.loads(done.stdout)
    kept = {one["id"]: one["kept_fork"] for one in report["conversations"] if one["kept_fork"]}
    of = {int(one["persona"]): one["id"] for one in report["conversations"]}
    try:
        yield Launched(folder / "runs", report["run"], of, kept, dsn_of(server))
    finally:
        async with open_registry(server) as registry:
            for entry in await entries_of(server):
                if entry.name in kept.values() and await registry.claim(entry):
                    await drop_by_name(server, entry.name, registry=registry)


async def diff(launched: Launched, *arguments: object) -> subprocess.CompletedProcess[str]:
    run = functools.partial(redteam, "diff", *arguments, "--out", launched.out)
    return await anyio.to_thread.run_sync(run)


async def diff_fork(launched: Launched, *arguments: object) -> subprocess.CompletedProcess[str]:
    return await diff(launched, *arguments, "--server", launched.dsn)


def named(launched: Launched, words: str) -> str:
    """The words with the launch's own names: RUN, and C1 to C3 for the persons' conversations."""
    words = words.replace("RUN", launched.run)
    return re.sub(r"\bC(\d)\b", lambda match: launched.of[int(match[1])], words)


async def test_a_fork_and_the_evidence_of_its_conversation_tell_the_same(launched: Launched) -> None:
    fork = await diff_fork(launched, launched.forks[launched.of[1]], "--format", "json")
    label = await diff_fork(launched, f"{launched.run}/{launched.of[1]}", "--format", "json")
    evidence = await diff(launched, "latest", launched.of[1], "--format", "json")
    stored = json.loads(
        (launched.out / launched.run / f"conversations/{launched.of[1]}/changes.json").read_text()
    )
    assert json.loads(fork.stdout)["hash"] == stored["hash"]
    assert json.loads(evidence.stdout) == stored
    assert label.stdout == fork.stdout
    assert [one["by"] for table in json.loads(fork.stdout)["tables"] for one in table["rows"]] == [
        one["by"] for table in stored["tables"] for one in table["rows"]
    ]


async def test_a_conversation_is_told_with_old_and_new_and_who_wrote_it(launched: Launched) -> None:
    done = await diff(launched, launched.run, launched.of[1])
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{launched.run} {launched.of[1]}: only, persona 1, cooperative"
    assert lines[1].startswith("2 rows in 2 tables (1 inserted, 1 updated), 1 sequence moved")
    start = lines.index("  ~ id 1   by give, turn 1")
    assert lines[start + 1 : start + 4] == [
        "      points  0 → 5",
        "      note    null → <script>alert(1)</script> | ⟨ESC⟩[31m",
        "      … 1 unchanged column",
    ]
    start = lines.index("  + id 1   outside any call")
    assert lines[start + 1] == "      at Thu 2026-12-03 14:30 UTC, who 1"
    assert "  seen_id_seq  null → 1" in lines


async def test_what_one_call_did_can_be_asked_for_by_name_and_by_id(launched: Launched) -> None:
    named = await diff_fork(launched, launched.forks[launched.of[2]], "--call", "give")
    assert "  ~ id 2   by give, turn 1" in named.stdout
    assert "outside any call" not in named.stdout
    assert "seen" not in named.stdout
    trace = (
        (launched.out / launched.run / f"conversations/{launched.of[2]}/trace.jsonl").read_text().splitlines()
    )
    (call,) = [
        event["call"]
        for event in map(json.loads, trace)
        if event["kind"] == "tool_call" and event["name"] == "give"
    ]
    by_id = await diff(launched, launched.run, launched.of[2], "--call", call)
    assert by_id.stdout.splitlines()[1:3] == named.stdout.splitlines()[1:3]
    looked = await diff(launched, launched.run, launched.of[2], "--call", "look")
    assert (looked.returncode, looked.stdout.splitlines()[1]) == (0, "nothing changed")


async def test_a_write_that_was_put_back_is_told_with_the_call_that_made_it(launched: Launched) -> None:
    done = await diff(launched, launched.run, launched.of[1], "--call", "try_out")
    lines = [line for line in done.stdout.splitlines() if " people   by try_out, turn 1" in line]
    assert lines
    assert all("update" in line for line in lines)
    assert "nothing left: put back or written over later" in done.stdout


async def test_one_table_can_be_asked_for(launched: Launched) -> None:
    done = await diff(launched, launched.run, launched.of[1], "--table", "seen")
    assert "1 row in 1 table (1 inserted)" in done.stdout
    assert "people" not in done.stdout


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("x.md", "## `"),
        ("x.html", "<!doctype html>"),
        ("x.json", "{"),
        ("x.txt", "RUN C1: only"),
        ("noending", "RUN C1: only"),
    ],
)
async def test_a_file_is_written_as_its_ending_says(
    launched: Launched, tmp_path: Path, name: str, begins: str
) -> None:
    done = await diff(launched, launched.run, launched.of[1], "--output", tmp_path / name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert text.startswith(named(launched, begins))
    assert "<script>alert" not in text or name != "x.html"
    assert "\x1b" not in text


async def test_a_format_wins_over_the_ending(launched: Launched, tmp_path: Path) -> None:
    await diff(launched, launched.run, launched.of[1], "--output", tmp_path / "x.md", "--format", "json")
    assert "hash" in json.loads((tmp_path / "x.md").read_text())


def _on_a_terminal(arguments: list[str], **env: str) -> str:
    sized = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "60"}
    code, written = shown_at_a_terminal(*arguments, cwd=None, **{**sized, **env})
    assert code == 0
    return written


async def test_colour_is_for_terminals_and_for_those_who_want_it(launched: Launched) -> None:
    arguments = ["diff", launched.run, launched.of[1], "--out", str(launched.out)]
    coloured = await anyio.to_thread.run_sync(functools.partial(_on_a_terminal, arguments))
    plain = await anyio.to_thread.run_sync(functools.partial(_on_a_terminal, arguments, NO_COLOR="1"))
    piped = (await diff(launched, launched.run, launched.of[1])).stdout
    assert re.search(r"\x1b\[[0-9;]*3[1-7]m", coloured)
    assert not re.search(r"\x1b\[(?:[0-9;]*;)?[34][0-9]", plain)
    assert "\x1b" not in piped


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["RUN", "c009"], "'c009'; it has c001 to c003", id="conversation"),
        pytest.param(["nope", "C1"], "no run 'nope' under", id="run"),
        pytest.param(
            ["RUN", "C3"], "conversation C3 of run RUN has no change set: it ended by a infra-fault",
            id="no-change-set",
        ),
        pytest.param(["RUN", "C1", "--table", "pepole"], "did you mean 'people'?", id="table"),
        pytest.param(["RUN", "C1", "--call", "giv"], "no call 'giv'; did you mean 'give'?", id="call"),
        pytest.param(["RUN", "C1", "--server", "x"], "--server says where a fork is", id="server"),
        pytest.param(["RUN", "C1", "--format", "xml"], "xml", id="format"),
        pytest.param(["RUN", "C1", "--colour"], "--colour", id="option"),
        pytest.param([], "Missing argument", id="nothing"),
    ],
)  # fmt: skip
async def test_a_wrong_word_is_exit_2_with_the_right_one(
    launched: Launched, arguments: list[str], says: str
) -> None:
    done = await diff(launched, *(named(launched, word) for word in arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert named(launched, says) in done.stderr


async def test_a_fork_that_is_not_there_says_where_to_look_instead(launched: Launched) -> None:
    fork = launched.forks[launched.of[1]]
    for target, says in (
        (fork[:-1] + ("q" if fork[-1] != "q" else "z"), f"near: {fork}"),
        (f"{launched.run}/{launched.of[3]}", f"redteam diff {launched.run} {launched.of[3]}"),
        (launched.run, f"it is a run, so name a conversation, too: redteam diff {launched.run} CONVERSATION"),
    ):
        done = await diff_fork(launched, target)
        assert (done.returncode, done.stdout) == (2, "")
        assert says in done.stderr


async def test_a_fork_without_its_trace_is_shown_and_the_lack_is_told(
    launched: Launched, tmp_path: Path
) -> None:
    command = ["diff", launched.forks[launched.of[1]], "--server", launched.dsn, "--out", tmp_path]
    done = await anyio.to_thread.run_sync(functools.partial(redteam, *command))
    assert done.returncode == 0
    assert f"the trace of {launched.run}/{launched.of[1]} is not under {tmp_path}; --out DIR" in done.stderr
    assert "      points  0 → 5" in done.stdout
    assert "by give" not in done.stdout
    asked = await anyio.to_thread.run_sync(functools.partial(redteam, *command, "--call", "give"))
    assert (asked.returncode, "no tool call is known of fork" in asked.stderr) == (2, True)


def _copied(launched: Launched, folder: Path, change: dict[str, Any] | str) -> Path:
    shutil.copytree(launched.out, folder)
    path = folder / launched.run / f"conversations/{launched.of[1]}/changes.json"
    path.write_text(
        change if isinstance(change, str) else json.dumps({**json.loads(path.read_text()), **change})
    )
    return folder


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        pytest.param(
            {"version": 1}, 2, "a change set of version 1, where this program reads 2", id="version"
        ),
        pytest.param({"objects": [], "sequences": []}, 2, "was cut or edited", id="edited"),
        pytest.param({"tables": [{}]}, 3, "was cut or edited", id="another-shape"),
        pytest.param('{"version": 2, "tables"', 3, "cannot be read", id="cut"),
    ],
)
async def test_evidence_that_is_not_as_it_was_written_is_one_message(
    launched: Launched, tmp_path: Path, change: dict[str, Any] | str, code: int, says: str
) -> None:
    out = _copied(launched, tmp_path / "runs", change)
    done = await anyio.to_thread.run_sync(
        functools.partial(redteam, "diff", launched.run, launched.of[1], "--out", out)
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
    assert launched.of[1] in done.stderr


async def test_a_file_that_cannot_be_written_is_exit_3(launched: Launched, tmp_path: Path) -> None:
    done = await diff(launched, launched.run, launched.of[1], "--output", tmp_path / "no" / "x.md")
    assert done.returncode == 3
    assert f"{tmp_path / 'no' / 'x.md'} cannot be written: No such file or directory" in done.stderr


def test_help_shows_how_to_begin() -> None:
    done = redteam("diff", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for word in (
        "redteam diff latest c008",
        "--call",
        "--table",
        "--format",
        "--all",
        "--output",
        "Exit code",
    ):
        assert word in done.stdout


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


async def test_the_page_that_is_written_is_the_same_story(launched: Launched, tmp_path: Path) -> None:
    await diff(launched, launched.run, launched.of[1], "--output", tmp_path / "x.html")
    texts = _Texts()
    texts.feed((tmp_path / "x.html").read_text(encoding="utf-8"))
    story = " ".join("".join(texts.parts).split())
    for part in (
        f"{launched.run} {launched.of[1]}: only",
        "by give, turn 1",
        "outside any call",
        "<script>alert(1)</script>",
    ):
        assert part in story
